//! Collection of what is of no use any more.

use crate::message::collect;

verbs! {
    /// Collect now; says what was collected, what was kept, and why
    GcForce {
        step: "gc.force", endpoint: "gc-force",
        subject: "berth.v1.gc.force", to: (),
        service: GC, senders: [OPERATOR], effect: Change,
        request: collect::Force, reply: collect::Sweep,
        errors: [],
    }
}
