// Parts of the parsers of lines, for those of single lines (lines.cpp) and of logs of bandits (logs.cpp).
#pragma once

#include <algorithm>
#include <cmath>
#include <stdexcept>
#include <vector>

#include "text.hpp"

namespace robustfd {

enum class Dialect { libsvm, vw };
constexpr Dialect LIBSVM = Dialect::libsvm, VW = Dialect::vw;

// The byte that ends the features, and also a number: a comment or the next namespace.
template <Dialect D> constexpr Letter MARK = D == VW ? '|' : '#';

inline bool is_blank(Letter c) { return c == ' ' || c == '\t' || c == '\r'; }

template <Dialect D> inline bool ends_token(Letter c) { return is_blank(c) || c == '\n' || c == MARK<D>; }

template <Dialect D> inline bool ends_name(Letter c) { return c <= ' ' || c == ':' || (D == VW && c == MARK<D>); }

inline const Letter* past_blanks(const Letter* p) {
    while (is_blank(*p)) ++p;
    return p;
}

// -------------------------------------------------------------------------------------------------- features

// A namespace of features. LIBSVM text has one, without a name.
struct Space {
    bool named = false;
    std::uint32_t seed = 0;  // the hash of its name
    double weight = 1.0;     // of its values
};

constexpr Index NO_COLUMN = -1;   // of a name, if names are not hashed
constexpr Index NO_FEATURE = -2;  // LIBSVM's qid:...

struct Entry {
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
template <Dialect D> inline Problem place_number(std::uint64_t number, const ParseOptions& o, Entry& entry) {
    entry.column = static_cast<Index>(number) - o.first;
    if (entry.column < 0) return Problem::below_first;
    if (entry.column <= LARGEST_INDEX) return Problem::none;
    entry.column = NO_COLUMN;
    return D == VW && o.drop ? Problem::none : Problem::too_large;
}

// Read a feature that is not a number.
template <Dialect D> Problem read_name(const Letter*& p, const ParseOptions& o, const Space& space, Entry& entry) {
    const Letter* const begin = p;
    while (!ends_name<D>(*p)) ++p;
    if (D == LIBSVM && *p == ':' && p - begin == 3 && std::equal(begin, p, "qid")) {
        while (*p > ' ') ++p;
        entry.column = NO_FEATURE;
        return Problem::none;
    }
    const bool unnamed = D == VW && p == begin && *p == ':';
    if ((p == begin && !unnamed) || (D == LIBSVM && o.bits < 0)) return Problem::no_index;
    if (o.bits < 0) {
        entry.column = NO_COLUMN;
        return o.drop ? Problem::none : Problem::no_index;
    }
    const HashedName hashed = hash_name({begin, p}, o.bits, space.seed);
    entry.column = hashed.column;
    entry.value *= hashed.sign;
    return Problem::none;
}

// Read a feature up to the colon or the blank after it. In Vowpal Wabbit text there may be nothing before a colon; the
// name is then the number of such features before.
template <Dialect D>
inline Problem read_feature(const Letter*& p, const ParseOptions& o, const Space& space, Index& unnamed, Entry& entry) {
    const Letter* const begin = p;
    std::uint64_t number = 0;
    p = read_digits(p, number);
    bool is_number = p > begin;
    if (D == VW && !is_number && *p == ':') {
        number = static_cast<std::uint64_t>(unnamed++);
        is_number = true;
    }
    if (is_number && o.bits < 0 && !space.named && (*p == ':' || (D == VW && ends_token<D>(*p)))) {
        if (p - begin > 18) number = many_digits(begin, p);
        return place_number<D>(number, o, entry);
    }
    if (is_number && o.bits >= 0 && ends_name<D>(*p)) {
        entry.column = low_bits(space.seed + number, o.bits);
        return Problem::none;
    }
    p = begin;
    return read_name<D>(p, o, space, entry);
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

// Add the features up to the end of the line or the next mark to a row, and count those without a column.
template <Dialect D>
Problem read_entries(const Letter*& start, const ParseOptions& o, const Space& space, CsrMatrix& rows, Index& dropped) {
    const Letter* p = start;
    Problem problem = Problem::none;
    Index unnamed = 0;
    while (true) {
        p = past_blanks(p);
        if (*p == '\n' || *p == MARK<D>) break;
        Entry entry{NO_COLUMN, space.weight};
        problem = read_feature<D>(p, o, space, unnamed, entry);
        if (problem != Problem::none) break;
        if (D == LIBSVM && entry.column == NO_FEATURE) continue;
        problem = read_value<D>(p, entry.value);
        if (problem != Problem::none) break;
        if (static_cast<std::uint64_t>(entry.column) < static_cast<std::uint64_t>(o.width)) {
            rows.add(entry.column, entry.value);
        } else if (o.drop) {
            ++dropped;
        } else {
            problem = Problem::beyond_last;
            break;
        }
    }
    start = p;
    return problem;
}

// ----------------------------------------------------------------------------------------------------- lines

inline void require_lines(Text text) {  // all loops stop at a line feed
    if (!text.empty() && text.back() != '\n') throw std::invalid_argument("a text must end with a line feed");
}

// Space for all entries: the number of bytes that can end one is a close upper bound.
template <Dialect D> Parsed room_for(Text text) {
    require_lines(text);
    return Parsed(1 + count_if(text, [](Letter c) { return (c <= ' ') | (c == MARK<D>); }));
}

// Call read_line(p) and then end_row(is_row) for each line; p is any place in the line. Its entries are the next row,
// or it has a problem.
template <class ReadLine, class EndRow>
void parse_lines(Text text, Parsed& parsed, ReadLine read_line, EndRow end_row) {
    const Letter *p = text.data(), *const begin = p, *const end = p + text.size();
    for (Index line = 0; p < end; ++line) {
        const Index start = p - begin, dropped = parsed.dropped;
        Problem problem = read_line(p);
        if (problem == Problem::none && !parsed.rows.settle()) problem = Problem::not_finite;
        if (problem == Problem::none) {
            parsed.rows.end_row();
        } else if (problem != Problem::blank) {
            parsed.rows.drop_row();
            parsed.bad.push_back({start, line, problem});
            parsed.dropped = dropped;
        }
        end_row(problem == Problem::none);
        while (*p != '\n') ++p;
        ++p;
    }
}

// --------------------------------------------------------------------------------------------- Vowpal Wabbit

// The part of a line before the first bar.
struct Head {
    double label = std::nan(""), weight = 1.0;
    const Letter *tag = nullptr, *tag_end = nullptr;
    Index action = -1;  // of bandits: the label is its cost
    double probability = std::nan("");
};

// Read up to the first bar. The words are read by read_word(begin, end, place, head).
template <class ReadWord> Problem read_head(const Letter*& p, Head& head, ReadWord read_word) {
    for (int place = 0;; ++place) {
        const Letter* const begin = p = past_blanks(p);
        if (*p == '|') return Problem::none;
        while (!ends_token<VW>(*p)) ++p;
        const Letter *const word_end = p, *const after = past_blanks(p);
        if (*after == '\n') return Problem::no_bar;
        if (*after == '|' && (after == word_end || *begin == '\'')) {  // a tag touches the bar or starts with a quote
            head.tag = begin + (*begin == '\'');
            head.tag_end = word_end;
            p = after;
            return Problem::none;
        }
        if (Problem problem = read_word(begin, word_end, place, head); problem != Problem::none) return problem;
    }
}

// Some entries of a row, and the first letter and the hash of their namespace.
struct Segment {
    std::size_t begin, end;
    Letter letter;
    std::uint32_t hash;
};

// Read the name and the weight of a namespace, after its bar.
inline Problem read_space(const Letter*& p, Space& space, Segment& segment) {
    const Letter* const begin = p;
    while (!ends_name<VW>(*p)) ++p;
    space.named = p > begin;
    if (space.named) space.seed = murmur3({begin, p}, 0);
    segment.letter = space.named ? *begin : ' ';
    segment.hash = space.seed;
    if (*p != ':') return ends_token<VW>(*p) ? Problem::none : Problem::no_space;
    if (!space.named) return Problem::no_space;
    const Letter* after = read_number(p + 1, space.weight);
    if (!after || !ends_token<VW>(*after)) return Problem::no_value;
    p = after;
    return std::isfinite(space.weight) ? Problem::none : Problem::not_finite;
}

// Read the namespaces and their features, from the first bar on.
inline Problem read_spaces(const Letter*& p, const ParseOptions& o, CsrMatrix& rows, Index& dropped,
                           std::vector<Segment>& segments) {
    segments.clear();
    while (*p == '|') {
        Space space;
        Segment segment{rows.entries(), 0, 0, 0};
        Problem problem = read_space(++p, space, segment);
        if (problem == Problem::none) problem = read_entries<VW>(p, o, space, rows, dropped);
        if (problem != Problem::none) return problem;
        segment.end = rows.entries();
        segments.push_back(segment);
    }
    return Problem::none;
}

}  // namespace robustfd
