#include "text.hpp"

#include <stdexcept>

namespace robustfd {

namespace {

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

}  // namespace

void require_lines(Text text) {
    if (!text.empty() && text.back() != '\n') throw std::invalid_argument("a text must end with a line feed");
}

std::size_t most_entries(Text text, Letter mark) {
    return 1 + count_if(text, [mark](Letter c) { return (c <= ' ') | (c == mark); });
}

std::size_t count_letter(Text text, Letter letter) {
    return count_if(text, [letter](Letter c) { return c == letter; });
}

bool end_line(Parsed& parsed, BadLine line, Index dropped_before) {
    if (line.problem == Problem::blank) return false;
    if (line.problem == Problem::none && !parsed.rows.settle()) line.problem = Problem::not_finite;
    if (line.problem == Problem::none) {
        parsed.rows.end_row();
        return true;
    }
    parsed.rows.drop_row();
    parsed.bad.push_back(line);
    parsed.dropped = dropped_before;
    return false;
}

}  // namespace robustfd
