// Memory of blocks of rows, which is used again for later blocks.
//
// A stream makes blocks of a few megabytes, one after the other. Allocators return pieces of this size to the system
// and get new ones, of which every page is cleared at its first use. That takes as long as parsing.
#pragma once

#include <cstddef>

namespace robustfd {

void* take_memory(std::size_t bytes);     // its content is undefined; throws std::bad_alloc
void give_memory(void* memory) noexcept;  // what take_memory returned, or nullptr

}  // namespace robustfd
