// RFD-SON, FD-SON, PFD-SON and FULL-ON: the current block of rows, and the basis that holds w and B.
#pragma once

#include "basis.hpp"
#include "learner.hpp"

namespace robustfd {

class Newton final : public Learner {
  public:
    // `rows` is the number of rows of B and of the block together, at least m; `run_rows` the least number of rows of a
    // run of sparse rows, which consists of whole blocks.
    Newton(const PaperSettings& settings, Index d, Index m, Index rows, bool sparse, Index run_rows);
    Newton(const Newton& other);

    Index features() const override { return basis_->features(); }
    std::vector<Part> parts() override;
    Index learn(const Rows& rows, const Batch& batch, const double* normal) override;
    void begin() override;
    void commit() override;
    void rollback() override;
    int extreme() const override { return state.extreme; }

    // The parts of `learn`, for projections onto a ball between them: add a row to the block and take its step, and end
    // a full block. They return false after an overflow.
    bool step(const Rows& row, const Batch& batch);
    bool end_block();
    bool is_full() { return block().is_full(); }
    const Change& change() const { return change_; }  // by the last `end_block`

    // The coefficients of B and of the rows in the change of the stored w by the steps of the block so far.
    void collect_steps(double* coef_b, double* coef_x);
    void multiply_weights(double factor);         // multiply w, through the numbers of the block
    void multiply_stored_weights(double factor);  // multiply w as it was at the beginning of the block
    void combine(double of_w, const double* coef_b, Span<const double> coef_x, Span<const std::int32_t> features,
                 double* out) {
        basis_->combine(of_w, coef_b, coef_x, features, out);
    }
    SparseBasis* sparse() { return dynamic_cast<SparseBasis*>(basis_.get()); }  // null for dense rows

    const PaperSettings settings;
    const Index m, size;
    BlockState state;

  private:
    Block block();
    void add(const Rows& rows, Index done, Index count);
    bool shrink();
    void store();
    Array<double> products_, gram_, k_, n_, rows_, lam_, ball_, overlaps_, coef_b_, coef_x_, scratch_;
    bool is_sparse_;
    std::unique_ptr<Basis> basis_;
    Change change_;
    bool active_ = false, stored_ = false;
    BlockState state_before_;
    Stored before_;
};

}  // namespace robustfd
