// Bindings of the untuned learner.
#include <nanobind/stl/optional.h>

#include "untuned.hpp"

namespace robustfd {

void bind_untuned(nb::module_& m) {
    using namespace nb::literals;
    nb::class_<Kept>(m, "Kept", "What rows may change in an untuned learner.");
    m.attr("INTERCEPT") = INTERCEPT;
    m.attr("GAMMA") = GAMMA;
    m.attr("WINDOWS") = WINDOWS;
    m.attr("OFFERED") = OFFERED;
    m.attr("ROUND_OFF") = ROUND_OFF;
    m.attr("HEAVIEST") = HEAVIEST;
    m.attr("LARGEST_TARGET") = LARGEST_TARGET;
    m.attr("FOLLOW_SHARE") = nb::make_tuple(FOLLOW_SHARE[0], FOLLOW_SHARE[1], FOLLOW_SHARE[2], FOLLOW_SHARE[3]);
    nb::class_<Untuned>(m, "Untuned", "The experts of the untuned learner.")
        .def(nb::init<>())
        .def_rw("seen", &Untuned::seen, "The number of rows so far.")
        .def("arrays", &Untuned::arrays, nb::sig("def arrays(self) -> dict[str, numpy.typing.NDArray[typing.Any]]"),
             "Return views of all arrays by name; records are rows of float64.")
        .def("replace", &Untuned::replace, "arrays"_a, "Replace some arrays by copies of the given ones.")
        .def("learn", &Untuned::learn, "x"_a, "y"_a.noconvert(), "weight"_a.noconvert(), "margins"_a.noconvert(),
             "first"_a, "last"_a, "update_stats"_a,
             "Learn rows and fill their predictions before each step; return the row at which the sketch was full.")
        .def("read", &Untuned::read, "x"_a, "margins"_a.noconvert(), "Fill the predictions of rows.")
        .def("explain", &Untuned::explain, "x"_a, "effects"_a.noconvert(), "indptr"_a.noconvert(),
             "which"_a.noconvert(), "parts"_a.noconvert(), "List the contributions of features to predictions.")
        .def(
            "keep",
            [](Untuned& self, Index rows, std::optional<In1<std::int32_t>> features) {
                Span<const std::int32_t> some;
                if (features) some = {features->data(), features->size()};
                return Kept(self.experts, rows, some, !features);
            },
            "rows"_a, "features"_a.none(), "Return what `undo` needs to forget rows with these features, None for all.")
        .def(
            "undo", [](Untuned& self, const Kept& kept) { kept.restore(self.experts); }, "kept"_a,
            "Restore the state at the time of `keep`.")
        .def("first_scales", &Untuned::first_scales, "which"_a.noconvert(), "Set the scales of features.")
        .def("renew_exact", &Untuned::renew_exact, "faded"_a, "Update the exact Hessian.")
        .def(
            "__deepcopy__",
            [](const Untuned& self, nb::handle) {
                Untuned copy;
                copy.experts = self.experts;
                copy.seen = self.seen;
                return copy;
            },
            "memo"_a)
        .def("__getstate__", [](Untuned& self) { return nb::make_tuple(self.seen, self.arrays()); })
        .def(
            "__setstate__",
            [](Untuned& self, const nb::tuple& state) {
                new (&self) Untuned();
                self.seen = nb::cast<Index>(state[0]);
                self.replace(nb::cast<nb::dict>(state[1]));
            },
            "state"_a);
    m.def("implicit_steps", [](In1<float> z, In1<float> length, Out1<float> chance, Out1<float> step) {
        const Index n = static_cast<Index>(z.shape(0));
        require(z.shape(0) == length.shape(0) && z.shape(0) == chance.shape(0) && z.shape(0) == step.shape(0),
                "the lengths differ");
        require(n % 8 == 0, "the lengths must be multiples of 8");
        untuned_loops().implicit_steps(z.data(), length.data(), chance.data(), step.data(), n);
    }, "z"_a.noconvert(), "length"_a.noconvert(), "chance"_a.noconvert(), "step"_a.noconvert(),
       "Fill chance with sigmoid(z) and step with the root s of s = sigmoid(-(z + length s)).");
}

}  // namespace robustfd
