#include "level.hpp"

#include <atomic>
#include <initializer_list>

#ifdef RFD_SEVERAL_LEVELS
#include <cpuid.h>
#endif

namespace robustfd {

namespace {

#ifdef RFD_SEVERAL_LEVELS
// The processor is asked directly: __builtin_cpu_supports does not link into a shared library with every compiler.
bool has(unsigned value, std::initializer_list<int> bits) {
    for (int bit : bits)
        if (!(value >> bit & 1u)) return false;
    return true;
}

Level detect() {
    unsigned a = 0, b = 0, c = 0, d = 0, basic = 0, extended = 0;
    if (!__get_cpuid(1, &a, &b, &basic, &d)) return Level::x86_64;
    const bool saves_registers = has(basic, {27, 28});                                       // OSXSAVE, AVX
    if (!saves_registers || !has(basic, {12, 22, 29})) return Level::x86_64;                 // FMA, MOVBE, F16C
    unsigned low = 0, high = 0;
    __asm__("xgetbv" : "=a"(low), "=d"(high) : "c"(0));                                      // what the system saves
    if (!has(low, {1, 2}) || !__get_cpuid_count(7, 0, &a, &b, &c, &d)) return Level::x86_64;
    unsigned ignored = 0;
    if (!__get_cpuid(0x80000001, &a, &ignored, &extended, &d) || !has(extended, {5})) return Level::x86_64;  // LZCNT
    if (!has(b, {3, 5, 8})) return Level::x86_64;                                            // BMI1, AVX2, BMI2
    const bool wide = has(low, {5, 6, 7}) && has(b, {16, 17, 28, 30, 31});                   // AVX512 F, DQ, CD, BW, VL
    return wide ? Level::x86_64_v4 : Level::x86_64_v3;
}
#else
Level detect() { return Level::x86_64; }
#endif

std::atomic<Level>& current() {
    static std::atomic<Level> now{best_level()};
    return now;
}

}  // namespace

Level best_level() {
    static const Level best = detect();
    return best;
}

Level level() { return current().load(std::memory_order_relaxed); }

void use_level(Level level) { current().store(level); }

}  // namespace robustfd
