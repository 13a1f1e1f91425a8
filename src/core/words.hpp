// Words of free text.
//
// A text value without spaces inside, such as a code, is one feature. A value of several words stands for its words and
// for the pairs of neighbours, and, if the words are few, as in the name of a category, also for the whole value. This
// depends on nothing but the value, so rows from all sources, in any order and in any model, agree.
#pragma once

#include "text.hpp"

namespace robustfd {

struct Term {
    Text name;
    double value;
};

class Terms {
  public:
    // The distinct terms of a value in UTF-8, valid until the next call and as long as the value.
    const std::vector<Term>& of(Text value);

  private:
    std::vector<Letter> words_;      // all words, with a space between two
    std::vector<std::size_t> ends_;  // of the words
    std::vector<Term> terms_;
};

// The terms of values: the value k has the entries starts[k] to starts[k + 1] - 1.
struct HashedValues {
    std::vector<Index> starts{0}, columns;
    std::vector<double> values;
};

// The columns, below 2^bits, of the names prefix + term, for the terms of the values text[ends[k] .. ends[k + 1] - 1].
HashedValues hash_values(Text prefix, Text text, Span<const Index> ends, int bits);

}  // namespace robustfd
