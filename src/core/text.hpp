// Text: decimal numbers, hashed names, rows of LIBSVM and of Vowpal Wabbit lines, and records of CSV.
#pragma once

#include <bit>
#include <cstdint>
#include <cstdlib>
#include <optional>
#include <vector>

#include "csr.hpp"

namespace robustfd {

using Letter = unsigned char;
using Text = Span<const Letter>;

// The number of letters for which a condition holds. Counts of a byte each fit into vectors, so this is ten times as
// fast as std::count_if.
template <class Condition> std::size_t count_if(Text text, Condition holds) {
    constexpr std::size_t lanes = 32, most = 255;
    const Letter* p = text.data();
    std::size_t left = text.size(), total = 0;
    while (left >= lanes) {
        Letter counts[lanes] = {};
        for (std::size_t k = 0; k < most && left >= lanes; ++k, p += lanes, left -= lanes)
            for (std::size_t i = 0; i < lanes; ++i) counts[i] += static_cast<Letter>(holds(p[i]));
        for (Letter count : counts) total += count;
    }
    for (; left > 0; ++p, --left) total += holds(*p);
    return total;
}

// --------------------------------------------------------------------------------------------------- numbers

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

// ----------------------------------------------------------------------------------------------------- names

// A word as MurmurHash3 scrambles it; 0 stays 0.
inline std::uint32_t scrambled(std::uint32_t word) { return std::rotl(word * 0xCC9E2D51u, 15) * 0x1B873593u; }

// MurmurHash3 (32 bits, x86).
inline std::uint32_t murmur3(Text text, std::uint32_t seed) {
    std::uint32_t h = seed;
    const Letter *begin = text.data(), *end = begin + text.size();
    for (; end - begin >= 4; begin += 4) {
        const std::uint32_t last = begin[3], word = begin[0] | begin[1] << 8 | begin[2] << 16 | last << 24;
        h = std::rotl(h ^ scrambled(word), 13) * 5 + 0xE6546B64u;
    }
    std::uint32_t word = 0;
    while (end > begin) word = word << 8 | *--end;
    h ^= scrambled(word) ^ static_cast<std::uint32_t>(text.size());
    h = (h ^ h >> 16) * 0x85EBCA6Bu;
    h = (h ^ h >> 13) * 0xC2B2AE35u;
    return h ^ h >> 16;
}

// A column, and the sign that hashing gives to the values in it.
struct HashedName {
    Index column;
    double sign;
};

// The last `bits` bits of a number.
inline Index low_bits(std::uint64_t number, int bits) {
    return static_cast<Index>(number & ((std::uint64_t{1} << bits) - 1));
}

// The column, below 2^bits, and the sign of a name, as scikit-learn's FeatureHasher gives them with the seed 0.
inline HashedName hash_name(Text name, int bits, std::uint32_t seed = 0) {
    const Index h = static_cast<std::int32_t>(murmur3(name, seed));
    return {low_bits(static_cast<std::uint64_t>(std::abs(h)), bits), h >= 0 ? 1.0 : -1.0};
}

// ----------------------------------------------------------------------------------------------------- lines
//
// LIBSVM         label feature:value ... # comment
// Vowpal Wabbit  [label [importance [base]]] ['tag]|[namespace[:weight]] feature[:value] ... |namespace ...
//
// Text that does not end with a line feed is refused.

constexpr Index LARGEST_INDEX = (Index{1} << 31) - 2;  // of a feature

// Why a line is not a row.
enum class Problem {
    none, blank, no_label, no_index, below_first, beyond_last, no_value, not_finite, too_large,
    no_bar, bad_weight, has_base, no_space, unlabelled,  // in Vowpal Wabbit text only
    bad_action, two_costs, bad_probability, no_actions, late_shared  // in logs of bandits only
};

struct BadLine {
    Index begin, line;  // offset of the line in the text, and number of lines before it
    Problem problem;
};

// How features become columns. With bits >= 0 they are hashed into 2^bits columns, and otherwise they are numbers from
// `first` on, for `width` columns. With `drop`, features without a column are counted; otherwise they are problems.
struct ParseOptions {
    bool labelled;  // whether a line without a label is a problem
    Index first, width;
    int bits;
    bool drop;
};

struct Parsed {
    CsrMatrix rows;
    std::vector<double> labels;  // none in LIBSVM text that is not labelled; NaN if a line of the other has none
    std::vector<BadLine> bad;
    Index dropped = 0;
    // From Vowpal Wabbit text only:
    std::vector<double> weights;
    std::vector<Index> tags;        // start and end of the tag of each row, in the text
    std::vector<CsrMatrix> groups;  // for each group, the entries in its namespaces
    // From logs of bandits only; the labels are costs:
    std::vector<Index> chosen;          // the action of a row, or its place among several lines; -1 if not known
    std::vector<double> probabilities;  // of the chosen actions, NaN if not known
    std::vector<Index> actions;         // numbers in the line, or for each line the place of its only feature, or -1
    std::vector<Index> starts{0};       // of the actions of each row

    explicit Parsed(std::size_t room) : rows(room) {}
};

Parsed parse_libsvm(Text text, const ParseOptions& options);

constexpr Letter ANY_SPACE = ':';  // stands for all namespaces; no name contains it

// A group of namespaces: those whose name starts with a letter and has a hash.
struct Group {
    Letter letter;
    Index hash;  // -1: all names that start with this letter
};

Parsed parse_vw(Text text, const ParseOptions& options, Span<const Group> groups);

// Logs of bandits in Vowpal Wabbit text. A line for each row, `action:cost:probability action ... | features`: one
// action has a cost, and the others are those that could have been chosen as well.
Parsed parse_actions(Text text, const ParseOptions& options);

// Or a block of lines for each row, up to an empty line: `shared | features` of the context, if there are any, and a
// line for each action, of which one starts with `0:cost:probability`. The result's only group has the features of the
// actions, a row for each, hashed into 2^ACTION_BITS columns.
constexpr int ACTION_BITS = 30;
Parsed parse_blocks(Text text, const ParseOptions& options);

// ------------------------------------------------------------------------------------------------------- CSV
//
// A quote at the start of a field encloses everything up to the next single quote; "" is an escaped one. Elsewhere a
// quote is an ordinary character.

// Offsets of a record in its text, the number of lines before it, and the number of its fields, -1 if a quote is not
// closed.
struct Record {
    Index begin, end, line, fields;
};

// The first `most` records that are not empty.
std::vector<Record> find_records(Text text, Letter delimiter, std::size_t most);

// The end of the last record that ends with a line feed, 0 if there is none.
Index last_record_end(Text text, Letter delimiter);

// The fields k of each record with keep[k], separated by a letter, with a final line feed; nothing if a record does not
// have keep.size() fields. Empty records are skipped.
std::optional<std::vector<Letter>> copy_fields(Text text, Letter delimiter, Span<const bool> keep, Letter between);

}  // namespace robustfd
