// The arrays of a state, each with its name and shape. A state lists its arrays once; snapshots and undoing follow.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <variant>
#include <vector>

#include "array.hpp"

namespace robustfd {

struct Part {
    const char* name;
    std::variant<double*, std::int32_t*, std::uint8_t*> data;
    std::vector<Index> shape;
    bool by_feature;               // whether the first axis counts features
    std::shared_ptr<void> memory;  // keeps the numbers alive

    template <class T> Part(const char* name, const Array<T>& array, std::vector<Index> shape, bool by_feature = false)
        : name(name), data(array.data()), shape(std::move(shape)), by_feature(by_feature), memory(array.memory()) {}
};

// Numbers that are stored before they change.
class Stored {
  public:
    void put(const double* numbers, Index count) { numbers_.insert(numbers_.end(), numbers, numbers + count); }
    // Copy `count` numbers, starting at number `first`; return the number after them.
    Index take(Index first, double* numbers, Index count) const {
        std::copy_n(numbers_.data() + first, count, numbers);
        return first + count;
    }
    // Forget all numbers, and give back memory that most calls do not need.
    void clear() {
        if (numbers_.capacity() > SPARE) numbers_ = {};
        numbers_.clear();
    }

  private:
    static constexpr std::size_t SPARE = 1 << 18;
    std::vector<double> numbers_;
};

}  // namespace robustfd
