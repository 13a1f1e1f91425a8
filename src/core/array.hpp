// Views of arrays, and arrays that the core owns.
#pragma once

#include <array>
#include <cassert>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <new>
#include <span>
#include <utility>

namespace robustfd {

using Index = std::int64_t;

constexpr Index LANES = 8;            // numbers in a vector
constexpr Index LONGEST_VECTOR = 16;  // numbers in the longest one
constexpr Index padded(Index n, Index to = LANES) { return (n + to - 1) / to * to; }

template <class T> using Span = std::span<T>;

// A view of a row-major matrix whose rows are `stride` numbers apart.
template <class T> struct Matrix {
    T* data = nullptr;
    Index rows = 0, cols = 0, stride = 0;

    Matrix() = default;
    Matrix(T* data, Index rows, Index cols) : Matrix(data, rows, cols, cols) {}
    Matrix(T* data, Index rows, Index cols, Index stride) : data(data), rows(rows), cols(cols), stride(stride) {}
    operator Matrix<const T>() const { return {data, rows, cols, stride}; }

    T* operator[](Index i) const {
        assert(0 <= i && i <= rows);
        return data + i * stride;
    }
    T& operator()(Index i, Index j) const {
        assert(0 <= i && i < rows && 0 <= j && j < cols);
        return data[i * stride + j];
    }
};

std::shared_ptr<void> zeros(std::size_t bytes);  // memory of an array, filled with zeros

// An owned array of zeros with up to three dimensions, aligned to a cache line. Large arrays take no memory until they
// are written to (`zeros` has the details). Copying copies the numbers. `memory` shares them, for views that may outlive the array.
template <class T> class Array {
  public:
    Array() = default;
    explicit Array(Index rows) : Array(Shape{rows, 1, 1}, 1) {}
    Array(Index rows, Index cols) : Array(Shape{rows, cols, 1}, 2) {}
    Array(Index planes, Index rows, Index cols) : Array(Shape{planes, rows, cols}, 3) {}
    Array(const Array& other) : Array(other.shape_, other.dims_) {
        if (size()) std::memcpy(data_, other.data_, static_cast<std::size_t>(size()) * sizeof(T));
    }
    Array(Array&& other) noexcept { swap(other); }
    Array& operator=(Array other) noexcept {
        swap(other);
        return *this;
    }

    T* data() const { return data_; }
    int dims() const { return dims_; }
    Index shape(int axis) const { return shape_[static_cast<std::size_t>(axis)]; }
    Index size() const { return shape_[0] * shape_[1] * shape_[2]; }
    const std::shared_ptr<void>& memory() const { return memory_; }
    Array shared() const {  // the same numbers, not a copy
        Array same;
        same.memory_ = memory_, same.data_ = data_, same.shape_ = shape_, same.dims_ = dims_;
        return same;
    }

    T& operator[](Index i) const {
        assert(0 <= i && i < size());
        return data_[i];
    }
    T* begin() const { return data_; }
    T* end() const { return data_ + size(); }
    Matrix<T> matrix() const { return {data_, shape_[0], shape_[1]}; }
    Matrix<T> plane(Index i) const {  // of an array with three dimensions
        assert(0 <= i && i < shape_[0]);
        return {data_ + i * shape_[1] * shape_[2], shape_[1], shape_[2]};
    }
    operator Span<T>() const { return {data_, static_cast<std::size_t>(size())}; }

  private:
    using Shape = std::array<Index, 3>;
    static constexpr std::size_t LINE = 64;

    Array(const Shape& shape, int dims) : shape_(shape), dims_(dims) {
        memory_ = zeros(static_cast<std::size_t>(size()) * sizeof(T) + LINE);
        const auto address = reinterpret_cast<std::uintptr_t>(memory_.get());
        data_ = reinterpret_cast<T*>((address + LINE - 1) / LINE * LINE);
    }
    void swap(Array& other) noexcept {
        std::swap(memory_, other.memory_);
        std::swap(data_, other.data_);
        std::swap(shape_, other.shape_);
        std::swap(dims_, other.dims_);
    }
    std::shared_ptr<void> memory_;
    T* data_ = nullptr;
    Shape shape_{0, 1, 1};
    int dims_ = 1;
};

}  // namespace robustfd
