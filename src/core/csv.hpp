// Records of CSV text. A quote at the start of a field encloses everything up to the next single quote; "" is an
// escaped one. Elsewhere a quote is an ordinary character.
#pragma once

#include <optional>
#include <vector>

#include "array.hpp"
#include "number.hpp"

namespace robustfd {

// Offsets of a record in its text, the number of lines before it, and the number of its fields, -1 if a quote is not
// closed.
struct Record {
    Index begin, end, line, fields;
};

// The first `most` records that are not empty.
std::vector<Record> find_records(Span<const Letter> text, Letter delimiter, std::size_t most);

// The end of the last record that ends with a line feed, 0 if there is none.
Index last_record_end(Span<const Letter> text, Letter delimiter);

// The fields k of each record with keep[k], separated by a letter, with a final line feed; nothing if a record does not
// have keep.size() fields. Empty records are skipped.
std::optional<std::vector<Letter>> copy_fields(Span<const Letter> text, Letter delimiter, Span<const bool> keep,
                                               Letter between);

}  // namespace robustfd
