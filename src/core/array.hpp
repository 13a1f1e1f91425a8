// Views of arrays, and arrays that the core owns.
#pragma once

#include <cassert>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <new>
#include <span>
#include <utility>

namespace robustfd {

using Index = std::int64_t;
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

// An owned array of zeros, aligned to a cache line. Large arrays take no memory until they are written to.
template <class T> class Array {
  public:
    Array() = default;
    explicit Array(Index size) : size_(size) {
        constexpr std::size_t line = 64;
        const std::size_t bytes = static_cast<std::size_t>(size) * sizeof(T) + line;
        raw_.reset(static_cast<std::byte*>(std::calloc(bytes, 1)));
        if (!raw_) throw std::bad_alloc();
        const auto address = reinterpret_cast<std::uintptr_t>(raw_.get());
        data_ = reinterpret_cast<T*>((address + line - 1) / line * line);
    }
    Array(const Array& other) : Array(other.size_) { copy_from(other.data_); }
    Array(Array&& other) noexcept { swap(other); }
    Array& operator=(Array other) noexcept {
        swap(other);
        return *this;
    }

    T* data() const { return data_; }
    Index size() const { return size_; }
    T& operator[](Index i) const {
        assert(0 <= i && i < size_);
        return data_[i];
    }
    T* begin() const { return data_; }
    T* end() const { return data_ + size_; }
    operator Span<T>() const { return {data_, static_cast<std::size_t>(size_)}; }

  private:
    struct Free {
        void operator()(std::byte* memory) const { std::free(memory); }
    };
    void copy_from(const T* source) {
        for (Index i = 0; i < size_; ++i) data_[i] = source[i];
    }
    void swap(Array& other) noexcept {
        std::swap(raw_, other.raw_);
        std::swap(data_, other.data_);
        std::swap(size_, other.size_);
    }
    std::unique_ptr<std::byte, Free> raw_;
    T* data_ = nullptr;
    Index size_ = 0;
};

}  // namespace robustfd
