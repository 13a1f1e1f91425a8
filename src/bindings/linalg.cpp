// Bindings of the linear algebra: BLAS and LAPACK of scipy, eigenpairs, shrink rules, sparse products.
#include <nanobind/stl/pair.h>

#include <algorithm>
#include <string_view>

#include "blas.hpp"
#include "convert.hpp"
#include "eigen.hpp"
#include "rules.hpp"
#include "sparse.hpp"

namespace robustfd {

namespace {

// Fill a pointer with a routine that scipy exports to Cython. The name of the capsule is the signature of the routine,
// which shows the width of its integers.
template <class F> void load(const nb::object& routines, const char* name, F& pointer) {
    const nb::object capsule = routines[name];
    const char* signature = PyCapsule_GetName(capsule.ptr());
    const std::string_view text = signature ? signature : "";
    if (text.find("int *") == std::string_view::npos || text.find("int64") != std::string_view::npos ||
        text.find("long") != std::string_view::npos)
        throw std::runtime_error(std::string("scipy's ") + name + " has the signature " + std::string(text) +
                                 "; robustfd needs a scipy with 32-bit BLAS integers.");
    pointer = reinterpret_cast<F>(PyCapsule_GetPointer(capsule.ptr(), signature));
}

Columns columns_of(const In1<Index>& starts, const In1<Index>& stops, const In1<Index>& rows, const In1<double>& data) {
    return {starts.data(), stops.data(), rows.data(), data.data(), length(stops)};
}

nb::tuple eigenpairs(const In2<double>& a, Index k) {
    const Index n = length(a);
    require(static_cast<Index>(a.shape(1)) == n && 0 <= k && k <= n, "a must be square and k at most its size");
    ensure_blas();
    std::vector<double> values(n), vectors(k * n);
    bool found = false;
    {
        nb::gil_scoped_release unlocked;
        found = largest_eigenpairs(matrix(a), k, values.data(), {vectors.data(), k, n});
    }
    if (!found) throw std::runtime_error("the eigenvalues did not converge");
    values.resize(std::min(k + 1, n));
    return nb::make_tuple(numpy_array(std::move(values)),
                          numpy_array(std::move(vectors), {static_cast<std::size_t>(k), static_cast<std::size_t>(n)}));
}

nb::tuple shrunk_values(const In1<double>& lam, Index m, Index j, double noise) {
    require(1 <= j && j <= m, "j must be between 1 and m");
    std::vector<double> kept(m - 1);
    const double delta = shrink_values({lam.data(), lam.size()}, m, j, noise, noise, kept.data());
    kept.resize(std::count_if(kept.begin(), kept.end(), [](double x) { return x != 0.0; }));  // zeros come last
    return nb::make_tuple(numpy_array(std::move(kept)), delta);
}

void add_product(const Out2<double>& c, const In2<double>& a, const In2<double>& b, double keep) {
    require(a.shape(1) == b.shape(0) && c.shape(0) == a.shape(0) && c.shape(1) == b.shape(1),
            "the shapes do not match");
    ensure_blas();
    nb::gil_scoped_release unlocked;
    gemm(false, false, 1.0, matrix(a), matrix(b), keep, matrix(c));
}

using Fortran2 = nb::ndarray<const double, nb::ndim<2>, nb::f_contig, nb::device::cpu>;

void fill_gram(const Fortran2& a, const Out2<double>& out) {
    require(out.shape(0) == a.shape(0) && out.shape(1) == a.shape(0), "the shapes do not match");
    ensure_blas();
    nb::gil_scoped_release unlocked;
    gram_of_columns(a.data(), static_cast<Index>(a.shape(0)), static_cast<Index>(a.shape(1)), matrix(out));
}

void bind_sparse(nb::module_& m) {
    using namespace nb::literals;
    using Starts = In1<Index>;
    using Numbers = In1<double>;
    m.def("sparse_add_gram", [](Starts starts, Starts stops, Starts rows, Numbers data, Out2<double> out) {
        nb::gil_scoped_release unlocked;
        sparse_products().add_gram(columns_of(starts, stops, rows, data), matrix(out));
    }, "starts"_a.noconvert(), "stops"_a.noconvert(), "rows"_a.noconvert(), "data"_a.noconvert(), "out"_a.noconvert(),
       "Add the lower triangle of x x' to `out`.");
    m.def(
        "sparse_add_product",
        [](Starts starts, Starts stops, Starts rows, Numbers data, In2<double> y, Out2<double> out) {
            require(length(stops) <= length(y) && y.shape(1) == out.shape(1), "the shapes do not match");
            nb::gil_scoped_release unlocked;
            sparse_products().add_product(columns_of(starts, stops, rows, data), matrix(y), matrix(out));
        },
        "starts"_a.noconvert(), "stops"_a.noconvert(), "rows"_a.noconvert(), "data"_a.noconvert(), "y"_a.noconvert(),
        "out"_a.noconvert(), "Add x y to `out`.");
    m.def(
        "sparse_add_transposed",
        [](Starts starts, Starts stops, Starts rows, Numbers data, In2<double> c, Out2<double> out) {
            require(length(stops) <= length(out) && c.shape(1) == out.shape(1), "the shapes do not match");
            nb::gil_scoped_release unlocked;
            sparse_products().add_transposed(columns_of(starts, stops, rows, data), matrix(c), matrix(out));
        },
        "starts"_a.noconvert(), "stops"_a.noconvert(), "rows"_a.noconvert(), "data"_a.noconvert(), "c"_a.noconvert(),
        "out"_a.noconvert(), "Add x' c to `out`.");
    m.def("centre", [](Numbers scale, Numbers share, Numbers rows_coef, Numbers mean_coef, Numbers mean_products,
                       Out2<double> y) {
        nb::gil_scoped_release unlocked;
        std::vector<double> sums(y.shape(1));
        sparse_products().centre({scale.data(), share.data(), rows_coef.data(), mean_coef.data()}, mean_products.data(),
                                 matrix(y), sums.data());
    }, "scale"_a.noconvert(), "share"_a.noconvert(), "rows_coef"_a.noconvert(), "mean_coef"_a.noconvert(),
       "mean_products"_a.noconvert(), "y"_a.noconvert(), "Centre the rows y in place.");
    m.def("centre_gram", [](Numbers scale, Numbers share, Numbers rows_coef, Numbers mean_coef, Numbers row_products,
                            Numbers mean_products, Out2<double> gram) {
        nb::gil_scoped_release unlocked;
        std::vector<double> sums(gram.shape(0));
        sparse_products().centre_gram({scale.data(), share.data(), rows_coef.data(), mean_coef.data()},
                                      row_products.data(), mean_products.data(), matrix(gram), sums.data());
    }, "scale"_a.noconvert(), "share"_a.noconvert(), "rows_coef"_a.noconvert(), "mean_coef"_a.noconvert(),
       "row_products"_a.noconvert(), "mean_products"_a.noconvert(), "gram"_a.noconvert(),
       "Centre both sides of x x' in place; only the lower triangle is read and written.");
}

}  // namespace

void ensure_blas() {
    Blas& table = blas();
    if (table.dgejsv) return;  // the last routine that is loaded
    const nb::object of_blas = nb::module_::import_("scipy.linalg.cython_blas").attr("__pyx_capi__");
    const nb::object of_lapack = nb::module_::import_("scipy.linalg.cython_lapack").attr("__pyx_capi__");
    load(of_blas, "dgemm", table.dgemm);
    load(of_blas, "dsyrk", table.dsyrk);
    load(of_lapack, "dsytrd", table.dsytrd);
    load(of_lapack, "dormtr", table.dormtr);
    load(of_lapack, "dsyevd", table.dsyevd);
    load(of_lapack, "dpstrf", table.dpstrf);
    load(of_lapack, "dgejsv", table.dgejsv);
}

void bind_linalg(nb::module_& m) {
    using namespace nb::literals;
    m.def("largest_eigenpairs", eigenpairs, "a"_a.noconvert(), "k"_a,
          "Return the k + 1 largest eigenvalues and k eigenvectors as rows; only the lower triangle of a is read.");
    m.def("shrink_values", shrunk_values, "lam"_a.noconvert(), "m"_a, "j"_a, "noise"_a,
          "Return the positive reduced values and delta.");
    m.def("add_product", add_product, "c"_a.noconvert(), "a"_a.noconvert(), "b"_a.noconvert(), "keep"_a,
          "Set c to a b + keep c.");
    m.def("fill_gram", fill_gram, "a"_a.noconvert(), "out"_a.noconvert(), "Set the lower triangle of `out` to a a'.");
    bind_sparse(m);
}

}  // namespace robustfd
