#include "recycled.hpp"

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdlib>
#include <mutex>
#include <new>
#include <utility>

namespace robustfd {

namespace {

constexpr std::size_t SMALLEST = std::size_t{1} << 17, LARGEST = std::size_t{1} << 23;  // bytes of pieces that are kept
constexpr std::size_t LOOSEST = 4;  // a piece is used for at least its size divided by this
constexpr std::size_t KEPT = 4;     // pieces

// What precedes a piece of memory.
struct alignas(std::max_align_t) Piece {
    std::size_t bytes;
};

struct Pool {
    std::mutex lock;
    std::array<Piece*, KEPT> pieces{};
};

Pool& pool() {
    static Pool& only = *new Pool;  // never destroyed, because arrays may be freed after all other objects
    return only;
}

bool is_kept(std::size_t bytes) { return SMALLEST <= bytes && bytes <= LARGEST; }

std::size_t size_of(const Piece* piece) { return piece ? piece->bytes : 0; }

// Both functions do without the pool when another thread is in it, so a process that is forked at this moment cannot
// wait for ever.
Piece* take_piece(std::size_t bytes) {
    const std::unique_lock held(pool().lock, std::try_to_lock);
    if (!held) return nullptr;
    for (Piece*& each : pool().pieces)
        if (size_of(each) >= bytes && size_of(each) / LOOSEST <= bytes) return std::exchange(each, nullptr);
    return nullptr;
}

// Keep a piece; return what is to be freed instead. Larger pieces are of use more often, so the smallest makes way.
Piece* keep_piece(Piece* piece) {
    const std::unique_lock held(pool().lock, std::try_to_lock);
    if (!held) return piece;
    auto& pieces = pool().pieces;
    Piece*& least = *std::min_element(pieces.begin(), pieces.end(),
                                      [](const Piece* a, const Piece* b) { return size_of(a) < size_of(b); });
    return size_of(least) < piece->bytes ? std::exchange(least, piece) : piece;
}

}  // namespace

void* take_memory(std::size_t bytes) {
    if (is_kept(bytes))
        if (Piece* piece = take_piece(bytes)) return piece + 1;
    void* memory = bytes <= SIZE_MAX - sizeof(Piece) ? std::malloc(bytes + sizeof(Piece)) : nullptr;
    if (!memory) throw std::bad_alloc();
    return new (memory) Piece{bytes} + 1;
}

void give_memory(void* memory) noexcept {
    if (!memory) return;
    Piece* piece = static_cast<Piece*>(memory) - 1;
    std::free(is_kept(piece->bytes) ? keep_piece(piece) : piece);
}

}  // namespace robustfd
