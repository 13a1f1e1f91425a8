#include "libsvm.hpp"

#include <cstring>

#include "entries.hpp"

namespace robustfd {

namespace {

Problem read_label(const Letter*& p, double& label) {
    const Letter* after = read_number(p, label);
    if (!after || !ends_token<Dialect::libsvm>(*after)) return Problem::no_label;
    p = after;
    return std::isfinite(label) ? Problem::none : Problem::not_finite;
}

Problem read_line(const Letter*& p, const ParseOptions& o, double& label, Parsed& parsed) {
    p = past_blanks(p);
    if (*p == '\n' || *p == MARK<Dialect::libsvm>) return Problem::blank;
    if (o.labelled)
        if (Problem problem = read_label(p, label); problem != Problem::none) return problem;
    return read_entries<Dialect::libsvm>(p, o, Space{}, parsed);
}

bool in_number(Letter c) { return is_digit(c) || c == '.' || c == '-' || c == '+' || (c | 32) == 'e'; }

// Find the smallest and the largest index of a line. Return the line feed, or nullptr if something is unusual.
const Letter* scan_indices(const Letter* p, Scan& scan) {
    Index least = scan.least, largest = scan.largest;
    while (true) {
        p = past_blanks(p);
        if (*p == '\n') break;
        const Letter* begin = p;
        std::uint64_t index = 0;
        p = read_digits(p, index);
        if (*p != ':' || p == begin || p - begin > 18 || index > LARGEST_INDEX) return nullptr;
        least = std::min(least, static_cast<Index>(index));
        largest = std::max(largest, static_cast<Index>(index));
        if (is_digit(p[1]) && p[2] == ' ') {  // the most common form
            p += 3;
            continue;
        }
        begin = ++p;
        while (in_number(*p)) ++p;
        if (p == begin || *p > ' ') return nullptr;
    }
    scan.least = least;
    scan.largest = largest;
    return p;
}

// The line feed at the end of a line, or nullptr if there is a comment before.
const Letter* plain_line_end(const Letter* p, const Letter* end) {
    const void* feed = std::memchr(p, '\n', static_cast<std::size_t>(end - p));
    const Letter* line_end = static_cast<const Letter*>(feed);
    return std::memchr(p, MARK<Dialect::libsvm>, static_cast<std::size_t>(line_end - p)) ? nullptr : line_end;
}

void add_label(std::vector<double>& labels, double label, std::size_t most) {
    if (labels.size() < most && std::find(labels.begin(), labels.end(), label) == labels.end()) labels.push_back(label);
}

}  // namespace

Parsed parse_libsvm(Text text, const ParseOptions& options) {
    require_lines(text);
    Parsed parsed(most_entries(text, MARK<Dialect::libsvm>));
    const Letter *p = text.data(), *const begin = p, *const end = p + text.size();
    for (Index line = 0; p < end; ++line) {
        const Index start = p - begin, dropped = parsed.dropped;
        double label = 0.0;
        const Problem problem = read_line(p, options, label, parsed);
        if (end_line(parsed, {start, line, problem}, dropped) && options.labelled) parsed.labels.push_back(label);
        p = past_line(p);
    }
    return parsed;
}

std::optional<Scan> scan_libsvm(Text text, bool labelled, bool named, std::size_t most) {
    require_lines(text);
    Scan scan;
    double label = std::nan("");
    const Letter *p = text.data(), *const end = p + text.size();
    for (; p < end; ++p) {
        p = past_blanks(p);
        if (*p == '\n') continue;
        ++scan.rows;
        if (labelled) {
            double value = 0.0;
            p = read_number(p, value);
            if (!p || *p > ' ' || !std::isfinite(value)) return std::nullopt;
            if (value != label) add_label(scan.labels, label = value, most);
        }
        p = named ? plain_line_end(p, end) : scan_indices(p, scan);
        if (!p) return std::nullopt;
    }
    return scan;
}

}  // namespace robustfd
