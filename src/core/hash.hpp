// Hashing of feature names to columns, as by scikit-learn's FeatureHasher.
#pragma once

#include <bit>
#include <cstdint>
#include <cstdlib>

#include "array.hpp"
#include "number.hpp"

namespace robustfd {

// A word as MurmurHash3 scrambles it; 0 stays 0.
inline std::uint32_t scrambled(std::uint32_t word) { return std::rotl(word * 0xCC9E2D51u, 15) * 0x1B873593u; }

// MurmurHash3 (32 bits, x86) of the bytes from begin to end.
inline std::uint32_t murmur3(const Letter* begin, const Letter* end, std::uint32_t seed) {
    std::uint32_t h = seed;
    const auto size = end - begin;
    for (; end - begin >= 4; begin += 4) {
        const std::uint32_t last = begin[3], word = begin[0] | begin[1] << 8 | begin[2] << 16 | last << 24;
        h = std::rotl(h ^ scrambled(word), 13) * 5 + 0xE6546B64u;
    }
    std::uint32_t word = 0;
    while (end > begin) word = word << 8 | *--end;
    h ^= scrambled(word) ^ static_cast<std::uint32_t>(size);
    h = (h ^ h >> 16) * 0x85EBCA6Bu;
    h = (h ^ h >> 13) * 0xC2B2AE35u;
    return h ^ h >> 16;
}

// A column, and the sign that hashing gives to the values in it.
struct HashedName {
    Index column;
    double sign;
};

// The last `bits` bits of a number.
inline Index low_bits(std::uint64_t number, int bits) {
    return static_cast<Index>(number & ((std::uint64_t{1} << bits) - 1));
}

// The column, below 2^bits, and the sign of a name. FeatureHasher uses the seed 0.
inline HashedName hash_name(const Letter* begin, const Letter* end, int bits, std::uint32_t seed = 0) {
    const Index h = static_cast<std::int32_t>(murmur3(begin, end, seed));
    return {low_bits(static_cast<std::uint64_t>(std::abs(h)), bits), h >= 0 ? 1.0 : -1.0};
}

}  // namespace robustfd
