#include "text.hpp"

#include <algorithm>
#include <charconv>
#include <limits>
#include <version>

#ifndef __cpp_lib_to_chars
#include <locale>
#include <sstream>
#include <string>
#endif

namespace robustfd {

namespace {

constexpr std::int64_t LARGEST_EXPONENT = std::int64_t{1} << 40;  // beyond the number of digits in any text

// The parts of a decimal: its digits with the point, without a sign, and its exponent.
struct Decimal {
    const Letter *begin, *point, *end;  // point is the end of the digits before it
    std::int64_t exponent;
};

const Letter* past_digits(const Letter* p) {
    while (is_digit(*p)) ++p;
    return p;
}

// Read the exponent that follows the digits, if there is one; return its end, or nullptr if it has no digits.
const Letter* read_exponent(const Letter* p, std::int64_t& exponent) {
    exponent = 0;
    if ((*p | 32) != 'e') return p;
    const bool negative = *++p == '-';
    if (negative || *p == '+') ++p;
    if (!is_digit(*p)) return nullptr;
    for (; is_digit(*p); ++p) exponent = std::min(10 * exponent + (*p - '0'), LARGEST_EXPONENT);
    if (negative) exponent = -exponent;
    return p;
}

// The value of a decimal that is too large or too small for a double. The place of its first digit other than 0 tells
// which.
double beyond_range(const Decimal& x) {
    const auto is_nonzero = [](Letter c) { return c != '0' && c != '.'; };
    const Letter* first = std::find_if(x.begin, x.end, is_nonzero);
    const std::int64_t place = first < x.point ? x.point - first : x.point + 1 - first;
    return first < x.end && place + x.exponent > 0 ? std::numeric_limits<double>::infinity() : 0.0;
}

double converted(const Decimal& x, const Letter* end) {
    double value = 0.0;
#ifdef __cpp_lib_to_chars
    const char *from = reinterpret_cast<const char*>(x.begin), *to = reinterpret_cast<const char*>(end);
    return std::from_chars(from, to, value).ec == std::errc() ? value : beyond_range(x);
#else  // slower, for older libraries
    std::istringstream stream(std::string(x.begin, end));
    stream.imbue(std::locale::classic());
    stream >> value;
    const bool tiny = 0.0 < value && value < std::numeric_limits<double>::min();  // may be called a failure
    return stream.fail() && !tiny ? beyond_range(x) : value;
#endif
}

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

const Letter* read_any_number(const Letter* p, double& value) {
    const bool negative = *p == '-';
    if (negative || *p == '+') ++p;
    Decimal x{p, past_digits(p), nullptr, 0};
    x.end = *x.point == '.' ? past_digits(x.point + 1) : x.point;
    if (x.end - x.begin == (x.end > x.point)) return nullptr;  // a point, or nothing
    const Letter* end = read_exponent(x.end, x.exponent);
    if (!end) return nullptr;
    value = converted(x, end);
    if (negative) value = -value;
    return end;
}

std::vector<Record> find_records(Text text, Letter delimiter, std::size_t most) {
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

Index last_record_end(Text text, Letter delimiter) {
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

std::optional<std::vector<Letter>> copy_fields(Text text, Letter delimiter, Span<const bool> keep, Letter between) {
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
