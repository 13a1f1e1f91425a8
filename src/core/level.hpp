// Levels of x86-64. Files with loops over rows are compiled once for each level, into a namespace of that name, and
// each exports one table of functions. The table of the best level that this processor has is chosen at run time.
//
// A file for a level must not emit inline functions that other files share: the linker keeps one copy of them, perhaps
// one with instructions that the processor lacks. tests/core/test_levels.py checks the object files.
#pragma once

#ifndef RFD_LEVEL
#define RFD_LEVEL x86_64
#endif

namespace robustfd {

enum class Level { x86_64, x86_64_v3, x86_64_v4 };

constexpr const char* LEVEL_NAMES[] = {"x86-64", "x86-64-v3", "x86-64-v4"};

Level best_level();           // of this processor and this build
Level level();                // in use
void use_level(Level level);  // for tests; the level must not be better than the best

}  // namespace robustfd

#ifdef RFD_SEVERAL_LEVELS
#define RFD_LEVELS(Table, table)                                                                                     \
    namespace x86_64 { extern const Table table; }                                                                   \
    namespace x86_64_v3 { extern const Table table; }                                                                \
    namespace x86_64_v4 { extern const Table table; }                                                                \
    inline const Table& table() {                                                                                    \
        switch (level()) {                                                                                           \
            case Level::x86_64_v4: return x86_64_v4::table;                                                          \
            case Level::x86_64_v3: return x86_64_v3::table;                                                          \
            default: return x86_64::table;                                                                           \
        }                                                                                                            \
    }
#else
#define RFD_LEVELS(Table, table)                                                                                     \
    namespace x86_64 { extern const Table table; }                                                                   \
    inline const Table& table() { return x86_64::table; }
#endif
