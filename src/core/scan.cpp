#include "scan.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "lines.hpp"

namespace robustfd {

namespace {

constexpr std::size_t PIECE = std::size_t{1} << 18, LONGEST = std::size_t{1} << 24;  // bytes at once, and of a line

bool in_number(Letter c) { return is_digit(c) || c == '.' || c == '-' || c == '+' || (c | 32) == 'e'; }

// Find the smallest and the largest index of a line. Return the line feed, or nullptr if something is unusual.
const Letter* scan_indices(const Letter* p, Scan& scan) {
    Index least = scan.least, largest = scan.largest;
    while (true) {
        p = past_blanks(p);
        if (*p == '\n') break;
        const Letter* begin = p;
        std::uint64_t index = 0;
        p = read_digits(p, index);
        if (*p != ':' || p == begin || p - begin > 18 || index > LARGEST_INDEX) return nullptr;
        least = std::min(least, static_cast<Index>(index));
        largest = std::max(largest, static_cast<Index>(index));
        if (is_digit(p[1]) && p[2] == ' ') {  // the most common form
            p += 3;
            continue;
        }
        begin = ++p;
        while (in_number(*p)) ++p;
        if (p == begin || *p > ' ') return nullptr;
    }
    scan.least = least;
    scan.largest = largest;
    return p;
}

// The line feed at the end of a line, or nullptr if there is a comment before.
const Letter* plain_line_end(const Letter* p, const Letter* end) {
    const void* feed = std::memchr(p, '\n', static_cast<std::size_t>(end - p));
    const Letter* line_end = static_cast<const Letter*>(feed);
    return std::memchr(p, MARK<LIBSVM>, static_cast<std::size_t>(line_end - p)) ? nullptr : line_end;
}

// Add lines to a scan; return false if one is unusual.
bool scan_lines(Text text, bool labelled, bool named, std::size_t most, Scan& scan) {
    std::vector<double>& labels = scan.labels;
    double label = std::nan("");
    const Letter *p = text.data(), *const end = p + text.size();
    for (; p < end; ++p) {
        p = past_blanks(p);
        if (*p == '\n') continue;
        ++scan.rows;
        if (labelled) {
            double value = 0.0;
            p = read_number(p, value);
            if (!p || *p > ' ' || !std::isfinite(value)) return false;
            if (value != label && labels.size() < most && std::ranges::find(labels, value) == labels.end())
                labels.push_back(value);
            label = value;
        }
        p = named ? plain_line_end(p, end) : scan_indices(p, scan);
        if (!p) return false;
    }
    return true;
}

}  // namespace

std::optional<Scan> scan_libsvm(Text text, bool labelled, bool named, std::size_t most) {
    require_lines(text);
    Scan scan;
    if (!scan_lines(text, labelled, named, most, scan)) return std::nullopt;
    return scan;
}

bool FileScan::advance(std::size_t bytes) {
    for (std::size_t done = 0; done < bytes; done += PIECE)
        if (!advance_once()) return false;
    return true;
}

bool FileScan::advance_once() {
    if (!scan_ || held_ > LONGEST) {
        scan_.reset();
        return false;
    }
    buffer_.resize(std::max(buffer_.size(), held_ + PIECE + 1));
    file_.read(reinterpret_cast<char*>(buffer_.data() + held_), PIECE);
    std::size_t size = held_ + static_cast<std::size_t>(file_.gcount());
    const bool more = file_.good();
    if (!more && !file_.eof()) scan_.reset();  // whoever reads the rows reports the error
    if (!more && size > 0) buffer_[size++] = '\n';  // the last line may lack it
    const Letter* const begin = buffer_.data();
    std::size_t end = size;
    while (end > 0 && begin[end - 1] != '\n') --end;
    if (scan_ && !scan_lines({begin, end}, true, false, most_, *scan_)) scan_.reset();
    std::copy(buffer_.begin() + end, buffer_.begin() + size, buffer_.begin());
    held_ = size - end;
    return more && scan_;
}

}  // namespace robustfd
