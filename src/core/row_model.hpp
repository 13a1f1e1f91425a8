// The common part of the methods of the paper without blocks: ADAGRAD, gradient descent, RP-SON and Oja-SON.
#pragma once

#include "learner.hpp"
#include "row_loops.hpp"

namespace robustfd {

class RowModel : public Learner {
  public:
    RowModel(const PaperSettings& settings, Index d) : settings(settings), d(d) {}

    Index features() const final { return d; }
    Index learn(const Rows& rows, const Batch& batch, const double* normal) final;
    // A row changes the numbers of its own features and those that belong to no feature. Only the former can be many,
    // so only those of the rows are stored.
    void begin() final;
    void commit() final;
    void rollback() final;
    int extreme() const final { return extreme_ ? 2 : 0; }
    void store_all();  // before a change of all features

    PaperSettings settings;
    const Index d;
    Index seen = 0;

  protected:
    RowModel(const RowModel&) = default;
    virtual Learned learn_rows(const Rows& rows, const Batch& batch, const double* normal) = 0;
    virtual bool changes_all_features() const { return false; }

  private:
    void store(const Rows& rows);
    bool active_ = false, has_all_ = false, extreme_ = false;
    Index seen_before_ = 0;
    Stored shared_, of_features_, all_;
    std::vector<std::int32_t> features_;
};

}  // namespace robustfd
