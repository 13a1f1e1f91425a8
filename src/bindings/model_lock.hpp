// The lock of a model as a Python object.
#pragma once

#include <vector>

#include "lock.hpp"

namespace robustfd {

// All locks of this process, for forks. Guarded by the interpreter's lock.
inline std::vector<Lock*>& all_locks() {
    static auto* locks = new std::vector<Lock*>;  // never destroyed: models may outlive the module
    return *locks;
}

class ModelLock {
  public:
    ModelLock() { all_locks().push_back(&lock_); }
    ~ModelLock() { std::erase(all_locks(), &lock_); }
    ModelLock(const ModelLock&) = delete;

    Lock& lock() { return lock_; }

  private:
    Lock lock_;
};

}  // namespace robustfd
