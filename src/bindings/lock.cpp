// Bindings of the lock of a model.
#include <algorithm>
#include <chrono>

#include "convert.hpp"
#include "model_lock.hpp"

namespace robustfd {

namespace {

constexpr std::chrono::milliseconds PATIENCE{50};  // between two looks at signals, such as Ctrl-C

void enter(Lock& lock, Lock::Use use) {
    if (lock.try_enter(use)) return;
    const unsigned long ticket = lock.queue();
    while (true) {
        bool entered = false;
        {
            nb::gil_scoped_release unlocked;
            entered = lock.wait(ticket, use, PATIENCE);
        }
        if (entered) return;
        if (PyErr_CheckSignals() != 0) {
            lock.leave_queue(ticket);
            throw nb::python_error();
        }
    }
}

// Before a fork, wait for the threads that change models, so that the child gets whole ones.
void before_fork() {
    for (Lock* lock : std::vector<Lock*>(all_locks())) enter(*lock, Lock::Use::read);
}

void after_fork_in_parent() {
    for (Lock* lock : all_locks()) lock->leave();
}

void after_fork_in_child() {
    for (Lock* lock : all_locks()) {
        lock->after_fork();
        lock->leave();
    }
}

}  // namespace

void bind_lock(nb::module_& m) {
    nb::class_<ModelLock>(m, "Lock", "A lock for many readers or one writer, which enter in the order they came.")
        .def(nb::init<>())
        .def(
            "acquire", [](ModelLock& self) { enter(self.lock(), Lock::Use::write); }, "Enter alone.")
        .def(
            "acquire_shared", [](ModelLock& self) { enter(self.lock(), Lock::Use::read); }, "Enter with other readers.")
        .def("release", [](ModelLock& self) { self.lock().leave(); }, "Leave.");
    const nb::object at_fork = nb::getattr(nb::module_::import_("os"), "register_at_fork", nb::none());
    if (!at_fork.is_none())
        at_fork(nb::arg("before") = nb::cpp_function(before_fork),
                nb::arg("after_in_parent") = nb::cpp_function(after_fork_in_parent),
                nb::arg("after_in_child") = nb::cpp_function(after_fork_in_child));
}

}  // namespace robustfd
