// LIBSVM text: label feature:value ... # comment
#pragma once

#include <optional>

#include "text.hpp"

namespace robustfd {

// Parse lines into rows; labels stay empty if lines have none. Text that does not end with a line feed is refused.
Parsed parse_libsvm(Text text, const ParseOptions& options);

// What a text contains: the number of rows, up to `most` of the distinct labels, and the smallest (at most 1) and the
// largest index.
struct Scan {
    Index rows = 0, least = 1, largest = 0;
    std::vector<double> labels;
};

// Look through a text for labels and indices, faster than parsing. Values are only checked for characters that no
// number has, and if features are `named`, they are not looked at. The result is empty if a line is unusual or has a
// problem.
std::optional<Scan> scan_libsvm(Text text, bool labelled, bool named, std::size_t most);

}  // namespace robustfd
