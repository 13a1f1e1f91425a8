// A lock for many readers or one writer. Threads enter in the order in which they came, so neither readers nor writers
// starve. A thread that holds the lock may take it again. Its outermost use decides: a method that only reads may call
// others that would enter alone.
#pragma once

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <new>
#include <stdexcept>
#include <thread>
#include <vector>

namespace robustfd {

class Lock {
  public:
    enum class Use { read, write };

    // Enter if nobody has to wait; return whether this thread is inside.
    bool try_enter(Use use) {
        const std::scoped_lock inside(mutex_);
        return enter_again() || (queue_.empty() && enter(use));
    }

    // Join the queue; the ticket is for `wait` and `leave_queue`.
    unsigned long queue() {
        const std::scoped_lock inside(mutex_);
        queue_.push_back(next_);
        return next_++;
    }

    // Wait for this thread's turn, at most for `patience`; return whether it is inside.
    bool wait(unsigned long ticket, Use use, std::chrono::milliseconds patience) {
        std::unique_lock inside(mutex_);
        const bool entered =
            changed_.wait_for(inside, patience, [&] { return queue_.front() == ticket && enter(use); });
        if (entered) {
            queue_.pop_front();
            changed_.notify_all();
        }
        return entered;
    }

    void leave_queue(unsigned long ticket) {
        const std::scoped_lock inside(mutex_);
        std::erase(queue_, ticket);
        changed_.notify_all();
    }

    void leave() {
        const std::scoped_lock inside(mutex_);
        const auto mine = find_mine();
        if (mine == holders_.end()) throw std::logic_error("released a lock that this thread does not hold");
        if (--mine->times > 0) return;
        holders_.erase(mine);
        writing_ = false;
        if (!queue_.empty()) changed_.notify_all();
    }

    // In a child process only this thread exists.
    void after_fork() {
        new (&mutex_) std::mutex;
        new (&changed_) std::condition_variable;
        queue_.clear();
        const auto me = std::this_thread::get_id();
        std::erase_if(holders_, [&](const Holder& holder) { return holder.thread != me; });
        writing_ = writing_ && !holders_.empty();
    }

  private:
    struct Holder {
        std::thread::id thread;
        int times;
    };

    std::vector<Holder>::iterator find_mine() {
        return std::ranges::find(holders_, std::this_thread::get_id(), &Holder::thread);
    }
    bool enter_again() {
        const auto mine = find_mine();
        return mine != holders_.end() && ++mine->times;
    }
    bool enter(Use use) {
        if (writing_ || (use == Use::write && !holders_.empty())) return false;
        writing_ = use == Use::write;
        holders_.push_back({std::this_thread::get_id(), 1});
        return true;
    }

    std::mutex mutex_;
    std::condition_variable changed_;
    std::deque<unsigned long> queue_;
    unsigned long next_ = 0;
    std::vector<Holder> holders_;  // many readers, or one writer
    bool writing_ = false;
};

}  // namespace robustfd
