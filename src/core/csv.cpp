#include "csv.hpp"

#include <algorithm>

namespace robustfd {

namespace {

bool ends_line(Letter c) { return c == '\n' || c == '\r'; }

// The end of the quote that starts at p, which is the closing quote, or `end` if it is not closed.
const Letter* closing(const Letter* p, const Letter* end) {
    for (++p; p < end; ++p) {
        if (*p != '"') continue;
        if (p + 1 == end || p[1] != '"') return p;
        ++p;
    }
    return end;
}

// Read a record from p on: find its end, and return the start of the next one.
const Letter* read_record(const Letter* p, const Letter* end, Letter delimiter, const Letter*& record_end,
                          Index& fields) {
    fields = 1;
    for (bool at_start = true; p < end; ++p) {
        if (*p == '"' && at_start) {
            p = closing(p, end);
            at_start = false;
            if (p == end) {
                fields = -1;
                break;
            }
        } else if (ends_line(*p)) {
            record_end = p;
            return p + (*p == '\r' && p + 1 < end && p[1] == '\n' ? 2 : 1);
        } else {
            at_start = *p == delimiter;
            fields += at_start;
        }
    }
    record_end = end;
    return end;
}

const Letter* field_end(const Letter* p, const Letter* end, Letter delimiter) {
    if (p < end && *p == '"') {
        p = closing(p, end);
        if (p < end) ++p;
    }
    while (p < end && *p != delimiter && !ends_line(*p)) ++p;
    return p;
}

}  // namespace

std::vector<Record> find_records(Span<const Letter> text, Letter delimiter, std::size_t most) {
    std::vector<Record> found;
    const Letter *p = text.data(), *const begin = p, *const end = p + text.size();
    for (Index line = 0; p < end && found.size() < most;) {
        const Letter *const start = p, *record_end = p;
        Index fields = 0;
        p = read_record(p, end, delimiter, record_end, fields);
        if (record_end > start) found.push_back({start - begin, record_end - begin, line, fields});
        line += std::count(start, p, Letter{'\n'});
    }
    return found;
}

Index last_record_end(Span<const Letter> text, Letter delimiter) {
    const Letter *const begin = text.data(), *const end = begin + text.size(), *last = begin;
    for (const Letter* p = begin; p < end; ++p) {
        if (*p == '\n') {
            last = p + 1;
        } else if (*p == '"' && (p == begin || p[-1] == delimiter || ends_line(p[-1]))) {
            p = closing(p, end);
            if (p == end) break;
        }
    }
    return last - begin;
}

std::optional<std::vector<Letter>> copy_fields(Span<const Letter> text, Letter delimiter, Span<const bool> keep,
                                               Letter between) {
    std::vector<Letter> copy;
    copy.reserve(text.size() + 1);
    const Letter *p = text.data(), *const end = p + text.size();
    while (p < end) {
        if (ends_line(*p)) {
            ++p;
            continue;
        }
        bool first = true;
        std::size_t field = 0;
        for (bool more = true; more; ++field) {
            if (field == keep.size()) return std::nullopt;
            const Letter* const start = p;
            p = field_end(p, end, delimiter);
            if (keep[field]) {
                if (!first) copy.push_back(between);
                copy.insert(copy.end(), start, p);
                first = false;
            }
            more = p < end && *p == delimiter;
            p += more;
        }
        if (field != keep.size()) return std::nullopt;
        copy.push_back('\n');
    }
    return copy;
}

}  // namespace robustfd
