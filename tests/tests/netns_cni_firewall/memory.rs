//! How much memory a call takes.
//!
//! Counted for each thread, since the tests of a suite run beside each other in one process.

#![allow(unsafe_code, reason = "there is no safe way to be an allocator")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

#[global_allocator]
static ALLOCATOR: Counting = Counting;

thread_local! {
    /// Bytes that this thread has taken and not given back.
    static HELD: Cell<isize> = const { Cell::new(0) };
    /// The most that it has held.
    static MOST: Cell<isize> = const { Cell::new(0) };
}

/// What `work` returns, and the most bytes that it has held at one time.
pub(crate) fn most_held<T>(work: impl FnOnce() -> T) -> (T, usize) {
    let before = HELD.get();
    MOST.set(before);
    let outcome = work();
    let most = MOST.get() - before;
    (outcome, most.unsigned_abs())
}

struct Counting;

// SAFETY: the system's allocator does the work; counting takes no memory.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size().cast_signed());
        // SAFETY: the caller has promised what the system's allocator asks for.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, place: *mut u8, layout: Layout) {
        count(layout.size().cast_signed().wrapping_neg());
        // SAFETY: `place` comes from the system's allocator, and has this layout.
        unsafe { System.dealloc(place, layout) }
    }
}

fn count(bytes: isize) {
    let held = HELD.get().wrapping_add(bytes);
    HELD.set(held);
    MOST.set(MOST.get().max(held));
}
