// The features of a line in LIBSVM and in Vowpal Wabbit text: feature:value, separated by blanks.
#pragma once

#include <algorithm>
#include <cmath>

#include "hash.hpp"
#include "text.hpp"

namespace robustfd {

enum class Dialect { libsvm, vw };

// The byte that ends the features, and also a number: a comment or the next namespace.
template <Dialect D> constexpr Letter MARK = D == Dialect::vw ? '|' : '#';

template <Dialect D> inline bool ends_token(Letter c) { return is_blank(c) || c == '\n' || c == MARK<D>; }

template <Dialect D> inline bool ends_name(Letter c) {
    return c <= ' ' || c == ':' || (D == Dialect::vw && c == MARK<D>);
}

// A namespace of features. LIBSVM text has one, without a name.
struct Space {
    bool named = false;
    std::uint32_t seed = 0;  // the hash of its name
    double weight = 1.0;     // of its values
};

constexpr Index NO_COLUMN = -1;   // of a name, if names are not hashed
constexpr Index NO_FEATURE = -2;  // LIBSVM's qid:...

struct Feature {
    Index column;
    double value;  // without the value in the text: the sign of its hash and the weight of its namespace
};

// The number in digits that may be too many for 64 bits.
inline std::uint64_t many_digits(const Letter* p, const Letter* end) {
    constexpr std::uint64_t enough = std::uint64_t{1} << 40;
    std::uint64_t number = 0;
    for (; p < end; ++p) number = std::min(10 * number + (*p - '0'), enough);
    return number;
}

// Find the column of a feature that is a number.
template <Dialect D> inline Problem place_number(std::uint64_t number, const ParseOptions& o, Feature& feature) {
    feature.column = static_cast<Index>(number) - o.first;
    if (feature.column < 0) return Problem::below_first;
    if (feature.column <= LARGEST_INDEX) return Problem::none;
    feature.column = NO_COLUMN;
    return D == Dialect::vw && o.drop ? Problem::none : Problem::too_large;
}

// Read a feature that is not a number.
template <Dialect D>
Problem read_name(const Letter*& p, const ParseOptions& o, const Space& space, Feature& feature) {
    const Letter* const begin = p;
    while (!ends_name<D>(*p)) ++p;
    if (D == Dialect::libsvm && *p == ':' && p - begin == 3 && std::equal(begin, p, "qid")) {
        while (*p > ' ') ++p;
        feature.column = NO_FEATURE;
        return Problem::none;
    }
    const bool unnamed = D == Dialect::vw && p == begin && *p == ':';
    if ((p == begin && !unnamed) || (D == Dialect::libsvm && o.bits < 0)) return Problem::no_index;
    if (o.bits < 0) {
        feature.column = NO_COLUMN;
        return o.drop ? Problem::none : Problem::no_index;
    }
    const HashedName hashed = hash_name(begin, p, o.bits, space.seed);
    feature.column = hashed.column;
    feature.value *= hashed.sign;
    return Problem::none;
}

// Read a feature up to the colon or the blank after it. In Vowpal Wabbit text there may be nothing before a colon; the
// name is then the number of such features before.
template <Dialect D>
inline Problem read_feature(const Letter*& p, const ParseOptions& o, const Space& space, Index& unnamed,
                            Feature& feature) {
    const Letter* const begin = p;
    std::uint64_t number = 0;
    p = read_digits(p, number);
    bool is_number = p > begin;
    if (D == Dialect::vw && !is_number && *p == ':') {
        number = static_cast<std::uint64_t>(unnamed++);
        is_number = true;
    }
    if (is_number && o.bits < 0 && !space.named && (*p == ':' || (D == Dialect::vw && ends_token<D>(*p)))) {
        if (p - begin > 18) number = many_digits(begin, p);
        return place_number<D>(number, o, feature);
    }
    if (is_number && o.bits >= 0 && ends_name<D>(*p)) {
        feature.column = low_bits(space.seed + number, o.bits);
        return Problem::none;
    }
    p = begin;
    return read_name<D>(p, o, space, feature);
}

// Read the value after a feature, if there is one, and multiply.
template <Dialect D> inline Problem read_value(const Letter*& p, double& value) {
    if (*p != ':') return ends_token<D>(*p) ? Problem::none : Problem::no_index;
    double number = 0.0;
    if (is_digit(p[1]) && ends_token<D>(p[2])) {  // the most common form
        number = p[1] - '0';
        p += 2;
    } else {
        const Letter* after = read_number(p + 1, number);
        if (!after || !ends_token<D>(*after)) return Problem::no_value;
        p = after;
    }
    value *= number;
    return std::isfinite(value) ? Problem::none : Problem::not_finite;
}

// Add the features up to the end of the line or the next mark to the row.
template <Dialect D>
Problem read_entries(const Letter*& start, const ParseOptions& o, const Space& space, Parsed& parsed) {
    const Letter* p = start;
    Problem problem = Problem::none;
    Index unnamed = 0;
    while (true) {
        p = past_blanks(p);
        if (*p == '\n' || *p == MARK<D>) break;
        Feature feature{NO_COLUMN, space.weight};
        problem = read_feature<D>(p, o, space, unnamed, feature);
        if (problem != Problem::none) break;
        if (D == Dialect::libsvm && feature.column == NO_FEATURE) continue;
        problem = read_value<D>(p, feature.value);
        if (problem != Problem::none) break;
        if (static_cast<std::uint64_t>(feature.column) < static_cast<std::uint64_t>(o.width)) {
            parsed.rows.add(feature.column, feature.value);
        } else if (o.drop) {
            ++parsed.dropped;
        } else {
            problem = Problem::beyond_last;
            break;
        }
    }
    start = p;
    return problem;
}

}  // namespace robustfd
