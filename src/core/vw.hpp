// Vowpal Wabbit text: [label [importance [base]]] ['tag]|[namespace[:weight]] feature[:value] ... |namespace ...
#pragma once

#include "text.hpp"

namespace robustfd {

constexpr Letter ANY_SPACE = ':';  // stands for all namespaces; no name contains it

// A group of namespaces: those whose name starts with a letter and has a hash.
struct Group {
    Letter letter;
    Index hash;  // -1: all names that start with this letter
};

// A label is NaN if the line has none.
struct ParsedVw : Parsed {
    std::vector<double> weights;
    std::vector<Index> tags;         // start and end of the tag of each row, in the text
    std::vector<CsrMatrix> parts;   // for each group, the entries in its namespaces
    using Parsed::Parsed;
};

// Parse lines into rows. Text that does not end with a line feed is refused.
ParsedVw parse_vw(Text text, const ParseOptions& options, Span<const Group> groups);

}  // namespace robustfd
