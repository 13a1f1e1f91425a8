// The Python module robustfd._core, with the levels of x86-64 and the lock of a model.
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <chrono>

#include "convert.hpp"
#include "level.hpp"

namespace robustfd {

namespace {

std::vector<std::string> levels() {
    return {LEVEL_NAMES, LEVEL_NAMES + 1 + static_cast<int>(best_level())};
}

void use_level_named(const std::string& name) {
    const std::vector<std::string> known = levels();
    const auto place = std::ranges::find(known, name);
    require(place != known.end(), "this processor does not have such a level");
    use_level(static_cast<Level>(place - known.begin()));
}

constexpr std::chrono::milliseconds PATIENCE{50};  // between two looks at signals, such as Ctrl-C

void enter(Lock& lock, Lock::Use use) {
    if (lock.try_enter(use)) return;
    const unsigned long ticket = lock.queue();
    while (!unlocked([&] { return lock.wait(ticket, use, PATIENCE); }))
        if (PyErr_CheckSignals() != 0) {
            lock.leave_queue(ticket);
            throw nb::python_error();
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

void bind_lock(nb::module_& m) {
    using Use = Lock::Use;
    nb::class_<ModelLock>(m, "Lock", "A lock for many readers or one writer, which enter in the order they came.")
        .def(nb::init<>())
        .def("acquire", [](ModelLock& self) { enter(self, Use::write); }, "Enter alone.")
        .def("acquire_shared", [](ModelLock& self) { enter(self, Use::read); }, "Enter with other readers.")
        .def("release", [](ModelLock& self) { self.leave(); }, "Leave.");
    const nb::object at_fork = nb::getattr(nb::module_::import_("os"), "register_at_fork", nb::none());
    if (!at_fork.is_none())
        at_fork(nb::arg("before") = nb::cpp_function(before_fork),
                nb::arg("after_in_parent") = nb::cpp_function(after_fork_in_parent),
                nb::arg("after_in_child") = nb::cpp_function(after_fork_in_child));
}

}  // namespace

}  // namespace robustfd

NB_MODULE(_core, m) {
    using namespace robustfd;
#ifdef NDEBUG
    nb::set_leak_warnings(false);  // at exit, threads of others may still hold models: those of Spark do
#endif
    m.doc() = "The compiled core of robustfd.";
    m.def("levels", levels, "Return the levels of x86-64 that this processor and this build have.");
    m.def("level", [] { return LEVEL_NAMES[static_cast<int>(level())]; }, "Return the level of x86-64 in use.");
    m.def("use_level", use_level_named, nb::arg("name"), "Use a level of x86-64, for tests.");
    bind_linalg(m);
    bind_lock(m);
    bind_paper(m);
    bind_text(m);
    bind_untuned(m);
    bind_bandit(m);
    bind_tracker(m);
    bind_forest(m);
}
