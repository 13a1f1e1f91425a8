// The Python module robustfd._core.
#include <nanobind/stl/string.h>

#include "convert.hpp"
#include "level.hpp"

namespace robustfd {

namespace {

std::vector<Level> levels() {
    std::vector<Level> found;
    for (Level each : {Level::x86_64, Level::x86_64_v3, Level::x86_64_v4})
        if (each <= best_level()) found.push_back(each);
    return found;
}

void use_level_named(const std::string& name) {
    for (Level each : levels())
        if (name_of(each) == name) return use_level(each);
    throw std::invalid_argument("unknown level " + name);
}

}  // namespace

}  // namespace robustfd

NB_MODULE(_core, m) {
    using namespace robustfd;
    m.doc() = "The compiled core of robustfd.";
    m.def("levels", [] {
        nb::list names;
        for (Level each : levels()) names.append(std::string(name_of(each)));
        return names;
    }, "Return the levels of x86-64 that this processor and this build have.",
       nb::sig("def levels() -> list[str]"));
    m.def("level", [] { return std::string(name_of(level())); }, "Return the level of x86-64 in use.");
    m.def("use_level", use_level_named, nb::arg("name"), "Use a level of x86-64, for tests.");
    bind_linalg(m);
    bind_paper(m);
    bind_text(m);
    bind_untuned(m);
}
