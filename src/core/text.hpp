// What the parsers of LIBSVM and Vowpal Wabbit text share: options, problems of lines, and results.
#pragma once

#include "csr.hpp"
#include "number.hpp"

namespace robustfd {

// Lines, each with its line feed.
using Text = Span<const Letter>;

constexpr Index LARGEST_INDEX = (Index{1} << 31) - 2;  // of a feature

// Why a line is not a row.
enum class Problem {
    none, blank, no_label, no_index, below_first, beyond_last, no_value, not_finite, too_large,
    no_bar, bad_weight, has_base, no_space, unlabelled  // in Vowpal Wabbit text only
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
    std::vector<double> labels;
    std::vector<BadLine> bad;
    Index dropped = 0;

    explicit Parsed(std::size_t room) : rows(room) {}
};

void require_lines(Text text);  // throws unless the text ends with a line feed, before which all loops stop

std::size_t count_letter(Text text, Letter letter);

// A close upper bound of the number of entries: the number of bytes that can end one.
std::size_t most_entries(Text text, Letter mark);

inline bool is_blank(Letter c) { return c == ' ' || c == '\t' || c == '\r'; }

inline const Letter* past_blanks(const Letter* p) {
    while (is_blank(*p)) ++p;
    return p;
}

// The start of the next line.
inline const Letter* past_line(const Letter* p) {
    while (*p != '\n') ++p;
    return p + 1;
}

// End a line: its entries are the next row, or it has a problem. Return whether it is a row.
bool end_line(Parsed& parsed, BadLine line, Index dropped_before);

}  // namespace robustfd
