#include "number.hpp"

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

#ifdef __cpp_lib_to_chars
double converted(const Decimal& x, const Letter* end) {
    double value = 0.0;
    const char *from = reinterpret_cast<const char*>(x.begin), *to = reinterpret_cast<const char*>(end);
    return std::from_chars(from, to, value).ec == std::errc() ? value : beyond_range(x);
}
#else
double converted(const Decimal& x, const Letter* end) {  // slower, for older libraries
    double value = 0.0;
    std::istringstream stream(std::string(x.begin, end));
    stream.imbue(std::locale::classic());
    stream >> value;
    const bool tiny = 0.0 < value && value < std::numeric_limits<double>::min();  // may be called a failure
    return stream.fail() && !tiny ? beyond_range(x) : value;
}
#endif

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

}  // namespace robustfd
