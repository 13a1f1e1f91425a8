// A look through LIBSVM text for what must be known before the first row: labels and indices. It is faster than parsing.
#pragma once

#include <filesystem>
#include <fstream>
#include <optional>
#include <vector>

#include "text.hpp"

namespace robustfd {

// What a text contains: the number of rows, up to `most` of the distinct labels, and the smallest (at most 1) and the
// largest index.
struct Scan {
    Index rows = 0, least = 1, largest = 0;
    std::vector<double> labels;
};

// Look through text. Values are only checked for characters that no number has, and if features are `named`, they are
// not looked at. The result is empty if a line is unusual or has a problem.
std::optional<Scan> scan_libsvm(Text text, bool labelled, bool named, std::size_t most);

// The scan of a file with labelled rows and numbered features, piece by piece. No piece is copied, and none is larger
// than a cache.
class FileScan {
  public:
    FileScan(const std::filesystem::path& path, std::size_t most) : file_(path, std::ios::binary), most_(most) {}

    bool advance(std::size_t bytes);                           // read about so many; return whether there may be more
    const std::optional<Scan>& result() const { return scan_; }  // of what has been read

  private:
    bool advance_once();

    std::ifstream file_;
    std::size_t most_, held_ = 0;  // held_: bytes of the last line, which has not ended
    std::vector<Letter> buffer_;
    std::optional<Scan> scan_{Scan{}};
};

}  // namespace robustfd
