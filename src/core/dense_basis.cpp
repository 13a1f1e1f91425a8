#include "basis.hpp"
#include "blas.hpp"

namespace robustfd {

namespace {

constexpr Index STRIP =
    256;  // features that are updated at a time, few enough for their part of the basis to stay in the cache

}  // namespace

DenseBasis::DenseBasis(Index d, Index m, Index rows)
    : d_(d), q_(m), rows_(rows), basis_(m * d), buffer_(rows * d), strip_(m * std::min(STRIP, d)) {}

std::vector<Part> DenseBasis::parts() {
    return {{"basis", basis_, {q_, d_}}, {"buffer", buffer_, {rows_, d_}}};
}

// The products are computed for a strip of features at a time, so that the data stay in the L1 cache.
void DenseBasis::add(const Block& block, const Rows& x, Index done, Index count) {
    const Index first = block.state.filled, last = first + count;
    block_rows_ = x.data + done * d_;
    if (count < block.capacity()) {  // otherwise x holds the whole block, and the rows need not be copied
        if (first < filled_before_) store_rows();
        std::copy_n(block_rows_, count * d_, buffer_.data() + first * d_);
        block_rows_ = buffer_.data();
        if (count == 1 && block_loops().add_thin_row(block, basis(), {buffer_.data(), last, d_})) return;
    }
    const Matrix<double> products(block.products[first], count, q_), gram(block.gram[first], count, last, block.size);
    for (Index start = 0; start < d_; start += STRIP) {
        const Index width = std::min(STRIP, d_ - start);
        const double keep = start == 0 ? 0.0 : 1.0;
        const Matrix<const double> added(block_rows_ + first * d_ + start, count, width, d_);
        gemm(false, true, 1.0, added, {basis_.data() + start, q_, width, d_}, keep, products);
        gemm(false, true, 1.0, added, {block_rows_ + start, last, width, d_}, keep, gram);
    }
}

void DenseBasis::change(const Block&, const Change& change) {
    store_all();
    const Index line = std::min(STRIP, d_), count = change.coef_x.cols;
    for (Index start = 0; start < d_; start += STRIP) {
        const Index width = std::min(STRIP, d_ - start);
        const Matrix<double> strip(strip_.data(), q_, width, line);
        gemm(false, false, 1.0, change.coef_b, {basis_.data() + d_ + start, q_ - 1, width, d_}, 0.0, strip);
        gemm(false, false, 1.0, change.coef_x, {block_rows_ + start, count, width, d_}, 1.0, strip);
        for (Index i = 0; i < q_; ++i) {
            const double* source = strip[i];
            double* target = basis_.data() + i * d_ + start;
            for (Index j = 0; j < width; ++j) target[j] = source[j] + (i == 0 ? target[j] : 0.0);
        }
    }
}

void DenseBasis::combine(double of_w, const double* coef_b, Span<const double> coef_x,
                         Span<const std::int32_t> features, double* out) {
    const Index n = static_cast<Index>(coef_x.size());
    std::vector<double> all(d_);
    for (Index j = 0; j < d_; ++j) all[j] = of_w * basis_[j];
    const Matrix<double> target(all.data(), 1, d_);
    gemm(false, false, 1.0, {coef_b, 1, q_ - 1}, {basis_.data() + d_, q_ - 1, d_}, 1.0, target);
    if (n > 0) gemm(false, false, 1.0, {coef_x.data(), 1, n}, {buffer_.data(), n, d_}, 1.0, target);
    if (features.empty()) std::copy_n(all.data(), d_, out);
    for (std::size_t k = 0; k < features.size(); ++k) out[k] = all[features[k]];
}

void DenseBasis::multiply_weights(double factor) {
    for (Index j = 0; j < d_; ++j) basis_[j] *= factor;
}

void DenseBasis::begin(Index filled) {
    commit();
    active_ = true;
    filled_before_ = filled;
}

void DenseBasis::store_all() {
    if (!active_ || stored_) return;
    before_.put(basis_.data(), q_ * d_);
    stored_ = true;
}

// Store the rows of the block before those of a new block replace them. Most calls end before that.
void DenseBasis::store_rows() {
    if (!active_ || has_rows_) return;
    rows_before_.put(buffer_.data(), filled_before_ * d_);
    has_rows_ = true;
}

void DenseBasis::commit() {
    active_ = stored_ = has_rows_ = false;
    before_.clear();
    rows_before_.clear();
}

void DenseBasis::rollback() {
    if (stored_) before_.take(0, basis_.data(), q_ * d_);
    if (has_rows_) rows_before_.take(0, buffer_.data(), filled_before_ * d_);
    commit();
}

}  // namespace robustfd
