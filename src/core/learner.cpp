#include "learner.hpp"

#include <math.h>

#include "progress.hpp"

namespace robustfd {

namespace {

bool are_usable(const double* numbers, Index count) {
    bool usable = true;
    for (Index i = 0; i < count; ++i) usable &= fabs(numbers[i]) <= LARGEST_INPUT;  // false for NaN
    return usable;
}

}  // namespace

bool learn_few(Learner& learner, const Rows& rows, const Batch& batch, const double* normal) {
    if (!are_usable(rows.data, rows.count * rows.width) || !are_usable(batch.y, rows.count)) return false;
    const Progress before = batch.progress[0];
    learner.begin();
    if (learner.learn(rows, batch, normal) == rows.count && learner.extreme() == 0) {
        learner.commit();
        return true;
    }
    learner.rollback();
    RFD_LEVEL::restore(batch.progress, before);
    return false;
}

}  // namespace robustfd
