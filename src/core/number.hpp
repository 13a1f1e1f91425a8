// Decimal numbers in text.
#pragma once

#include <cstddef>
#include <cstdint>

namespace robustfd {

using Letter = unsigned char;

inline bool is_digit(Letter c) { return static_cast<Letter>(c - '0') < 10; }

// Read the digits at p and append them to a number, modulo 2^64; return their end.
inline const Letter* read_digits(const Letter* p, std::uint64_t& number) {
    for (; is_digit(*p); ++p) number = 10 * number + (*p - '0');
    return p;
}

constexpr int EXACT_DIGITS = 15;  // a whole number of so many digits is a double, and so is the power of ten
constexpr double POWERS_OF_TEN[EXACT_DIGITS + 1] = {1e0, 1e1, 1e2,  1e3,  1e4,  1e5,  1e6,  1e7,
                                                    1e8, 1e9, 1e10, 1e11, 1e12, 1e13, 1e14, 1e15};

const Letter* read_any_number(const Letter* p, double& value);  // read_number for all numbers

// Read a number with at least one digit before or after the point: 1, -.5, +5., 1e-3. It is rounded to the nearest
// double, beyond the largest one to infinity. Return its end, or nullptr if there is none. The text must end with a
// byte that is not part of a number.
//
// The digits of a short number and the power of ten are exact doubles, so their quotient is rounded only once.
inline const Letter* read_number(const Letter* p, double& value) {
    const Letter* const start = p;
    const bool negative = *p == '-';
    if (negative || *p == '+') ++p;
    const Letter* first = p;
    std::uint64_t digits = 0;
    p = read_digits(p, digits);
    std::ptrdiff_t count = p - first, fraction = 0;
    if (*p == '.') {
        first = ++p;
        p = read_digits(p, digits);
        fraction = p - first;
        count += fraction;
    }
    if (count == 0) return nullptr;
    if (count > EXACT_DIGITS || (*p | 32) == 'e') return read_any_number(start, value);
    value = static_cast<double>(static_cast<std::int64_t>(digits)) / POWERS_OF_TEN[fraction];
    if (negative) value = -value;
    return p;
}

}  // namespace robustfd
