// Bindings of the linear algebra: BLAS and LAPACK of scipy, eigenpairs, shrink rules, sparse products.
#include <algorithm>
#include <string_view>

#include "blas.hpp"
#include "convert.hpp"
#include "eigen.hpp"
#include "matrices.hpp"

namespace robustfd {

namespace {

using namespace nb::literals;
using Indices = Span<const Index>;
using Numbers = Span<const double>;

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

nb::tuple eigenpairs(Matrix<const double> a, Index k) {
    const Index n = a.rows;
    require(a.cols == n && 0 <= k && k <= n, "a must be square and k at most its size");
    ensure_blas();
    std::vector<double> values(n), vectors(k * n);
    if (!unlocked([&] { return largest_eigenpairs(a, k, values.data(), {vectors.data(), k, n}); }))
        throw std::runtime_error("the eigenvalues did not converge");
    values.resize(std::min(k + 1, n));
    return nb::make_tuple(numpy_array(std::move(values)),
                          numpy_array(std::move(vectors), {static_cast<std::size_t>(k), static_cast<std::size_t>(n)}));
}

nb::tuple shrunk_values(Numbers lam, Index m, Index j, double noise) {
    require(1 <= j && j <= m, "j must be between 1 and m");
    std::vector<double> kept(m - 1);
    const double delta = shrink_values(lam, m, j, noise, noise, kept.data());
    kept.resize(std::count_if(kept.begin(), kept.end(), [](double x) { return x != 0.0; }));  // zeros come last
    return nb::make_tuple(numpy_array(std::move(kept)), delta);
}

void add_product(Matrix<double> c, Matrix<const double> a, Matrix<const double> b, double keep) {
    require(a.cols == b.rows && c.rows == a.rows && c.cols == b.cols, "the shapes do not match");
    ensure_blas();
    unlocked([&] { gemm(false, false, 1.0, a, b, keep, c); });
}

using Fortran = nb::ndarray<const double, nb::ndim<2>, nb::f_contig, nb::device::cpu>;

void fill_gram(const Fortran& a, Matrix<double> out) {
    const Index rows = length(a), cols = static_cast<Index>(a.shape(1));
    require(out.rows == rows && out.cols == rows, "the shapes do not match");
    ensure_blas();
    unlocked([&] { gram_of_columns(a.data(), rows, cols, out); });
}

void bind_sparse(nb::module_& m) {
    m.def("sparse_add_gram", [](Indices starts, Indices stops, Indices rows, Numbers data, Matrix<double> out) {
        matrix_loops().add_gram({starts.data(), stops, rows.data(), data.data()}, out);
    }, "starts"_a, "stops"_a, "rows"_a, "data"_a, "out"_a, Unlocked(), "Add the lower triangle of x x' to `out`.");
    m.def("sparse_add_product", [](Indices starts, Indices stops, Indices rows, Numbers data, Matrix<const double> y,
                                   Matrix<double> out) {
        require(length(stops) <= y.rows && y.cols == out.cols, "the shapes do not match");
        matrix_loops().add_product({starts.data(), stops, rows.data(), data.data()}, y, out);
    }, "starts"_a, "stops"_a, "rows"_a, "data"_a, "y"_a, "out"_a, Unlocked(), "Add x y to `out`.");
    m.def("sparse_add_transposed", [](Indices starts, Indices stops, Indices rows, Numbers data, Matrix<const double> c,
                                      Matrix<double> out) {
        require(length(stops) <= out.rows && c.cols == out.cols, "the shapes do not match");
        matrix_loops().add_transposed({starts.data(), stops, rows.data(), data.data()}, c, out);
    }, "starts"_a, "stops"_a, "rows"_a, "data"_a, "c"_a, "out"_a, Unlocked(), "Add x' c to `out`.");
    m.def("centre", [](Numbers scale, Numbers share, Numbers rows_coef, Numbers mean_coef, Numbers mean_products,
                       Matrix<double> y) {
        std::vector<double> sums(y.cols);
        matrix_loops().centre({scale.data(), share.data(), rows_coef.data(), mean_coef.data()}, mean_products.data(), y,
                              sums.data());
    }, "scale"_a, "share"_a, "rows_coef"_a, "mean_coef"_a, "mean_products"_a, "y"_a, Unlocked(),
       "Centre the rows y in place.");
    m.def("centre_gram", [](Numbers scale, Numbers share, Numbers rows_coef, Numbers mean_coef, Numbers row_products,
                            Numbers mean_products, Matrix<double> gram) {
        std::vector<double> sums(gram.rows);
        matrix_loops().centre_gram({scale.data(), share.data(), rows_coef.data(), mean_coef.data()},
                                   row_products.data(), mean_products.data(), gram, sums.data());
    }, "scale"_a, "share"_a, "rows_coef"_a, "mean_coef"_a, "row_products"_a, "mean_products"_a, "gram"_a, Unlocked(),
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
    m.def("largest_eigenpairs", eigenpairs, "a"_a, "k"_a,
          "Return the k + 1 largest eigenvalues and k eigenvectors as rows; only the lower triangle of a is read.");
    m.def("shrink_values", shrunk_values, "lam"_a, "m"_a, "j"_a, "noise"_a,
          "Return the positive reduced values and delta.");
    m.def("add_product", add_product, "c"_a, "a"_a, "b"_a, "keep"_a, "Set c to a b + keep c.");
    m.def("fill_gram", fill_gram, "a"_a.noconvert(), "out"_a, "Set the lower triangle of `out` to a a'.");
    bind_sparse(m);
}

}  // namespace robustfd
