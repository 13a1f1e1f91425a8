#include "array.hpp"

#if defined(__linux__)
#include <sys/mman.h>
#endif

namespace robustfd {

std::shared_ptr<void> zeros(std::size_t bytes) {
#if defined(__linux__) && defined(MADV_HUGEPAGE)
    // Random access to an array of this size is much faster with huge pages, also because it has few page faults. A
    // larger one may have few entries that are not zero, and then it would take more memory. The last page is a huge
    // one, too, unless that takes a fifth more memory.
    constexpr std::size_t PAGE = std::size_t{1} << 21, MOST = 4 * PAGE;
    const std::size_t size = (bytes + PAGE - 1) / PAGE * PAGE;
    const std::size_t huge = (size - bytes) * 5 <= bytes ? size : bytes / PAGE * PAGE;
    if (huge > 0 && bytes <= MOST) {
        void* start = mmap(nullptr, size + PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (start == MAP_FAILED) throw std::bad_alloc();
        const auto address = reinterpret_cast<std::uintptr_t>(start);
        auto* aligned = reinterpret_cast<void*>((address + PAGE - 1) / PAGE * PAGE);
        madvise(aligned, huge, MADV_HUGEPAGE);
        return {aligned, [start, size](void*) { munmap(start, size + PAGE); }};
    }
#endif
    std::shared_ptr<void> memory(std::calloc(bytes, 1), [](void* p) { std::free(p); });
    if (!memory) throw std::bad_alloc();
    return memory;
}

}  // namespace robustfd
