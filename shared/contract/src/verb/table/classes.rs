//! Classes: templates of volumes.

use berth_domain::Namespace;

use crate::message::class;

verbs! {
    /// Define a class of volumes, or change it: the class's document
    ClassPut {
        step: "class.put", endpoint: "class-put",
        subject: "berth.v1.class.put", to: (),
        service: CLAIM, senders: [OPERATOR], effect: BriefChange,
        request: class::PutClass, reply: class::WrittenClass,
        errors: [Changed, SecretsUnavailable],
    }

    /// Remove a class of which no volume is left: id
    ClassDelete {
        step: "class.delete", endpoint: "class-delete",
        subject: "berth.v1.class.delete", to: (),
        service: CLAIM, senders: [OPERATOR], effect: BriefChange,
        request: class::DeleteClass, reply: class::DeletedClass,
        errors: [NoSuchClass, ClassInUse, Changed],
    }

    /// List the classes that the namespace may use, and what it has of them: id, prefix, pages
    ClassList {
        step: "class.list", endpoint: "class-list",
        subject: "berth.v1.class.list.<ns>", to: Namespace,
        service: CLAIM, senders: [READ, DOCKER], effect: Read,
        request: class::ListClasses, reply: class::Classes,
        errors: [NoSuchClass],
    }
}
