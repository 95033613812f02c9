//! The contract in `proto/` against `wire.golden`, which was derived from CSI's own tables, with
//! what CSI 1.13 removed of 1.12. Neither follows from the other, so a number cannot change by
//! accident.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::path::Path;

use berth_csi::Rpc;
use protox::prost_reflect::{
    Cardinality, DescriptorPool, DynamicMessage, EnumDescriptor, FieldDescriptor, Kind,
    MessageDescriptor, MethodDescriptor,
};

/// The contract in the form that the build script reads.
pub fn pool() -> DescriptorPool {
    let include = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../proto");
    let mut compiler = protox::Compiler::new([include]).unwrap();
    compiler.include_imports(true).open_file("csi/v1/csi.proto").unwrap();
    compiler.descriptor_pool()
}

/// Every message of CSI, without the well-known types and the entries of maps.
fn messages(pool: &DescriptorPool) -> Vec<MessageDescriptor> {
    let is_of_csi = |m: &MessageDescriptor| m.package_name() == "csi.v1" && !m.is_map_entry();
    pool.all_messages().filter(is_of_csi).collect()
}

fn enums(pool: &DescriptorPool) -> Vec<EnumDescriptor> {
    pool.all_enums().filter(|e| e.package_name() == "csi.v1").collect()
}

fn methods(pool: &DescriptorPool) -> Vec<MethodDescriptor> {
    pool.services().flat_map(|s| s.methods().collect::<Vec<_>>()).collect()
}

/// Whether the option of that name is set.
pub fn has_option(pool: &DescriptorPool, options: &DynamicMessage, name: &str) -> bool {
    let option = pool.get_extension_by_name(&format!("csi.v1.{name}")).unwrap();
    options.get_extension(&option).as_bool().unwrap()
}

fn mark(set: bool, text: &'static str) -> &'static str {
    if set { text } else { "" }
}

fn kind_of(field: &FieldDescriptor) -> String {
    match field.kind() {
        Kind::Message(entry) if entry.is_map_entry() => {
            let part = |field: FieldDescriptor| format!("{:?}", field.kind());
            let (key, value) = (entry.map_entry_key_field(), entry.map_entry_value_field());
            format!("map<{}, {}>", part(key), part(value))
        }
        Kind::Message(message) => message.full_name().to_owned(),
        Kind::Enum(kind) => kind.full_name().to_owned(),
        scalar => format!("{scalar:?}"),
    }
}

fn describe_message(pool: &DescriptorPool, message: &MessageDescriptor) -> String {
    let alpha = has_option(pool, &message.options(), "alpha_message");
    let mut text = format!("msg  {}{}\n", message.full_name(), mark(alpha, " alpha"));
    for field in message.fields() {
        let many = field.cardinality() == Cardinality::Repeated && !field.is_map();
        write!(text, "       {} {}: ", field.number(), field.name()).unwrap();
        write!(text, "{}{}", mark(many, "repeated "), kind_of(&field)).unwrap();
        if let Some(oneof) = field.containing_oneof() {
            write!(text, " in {}", oneof.name()).unwrap();
        }
        let secret = has_option(pool, &field.options(), "csi_secret");
        let alpha = has_option(pool, &field.options(), "alpha_field");
        writeln!(text, "{}{}", mark(secret, " secret"), mark(alpha, " alpha")).unwrap();
    }
    text
}

fn describe_enum(pool: &DescriptorPool, kind: &EnumDescriptor) -> String {
    let mut text = format!("enum {}\n", kind.full_name());
    for value in kind.values() {
        let alpha = has_option(pool, &value.options(), "alpha_enum_value");
        writeln!(text, "       {} {}{}", value.number(), value.name(), mark(alpha, " alpha"))
            .unwrap();
    }
    text
}

fn describe_method(pool: &DescriptorPool, method: &MethodDescriptor) -> String {
    assert!(!method.is_client_streaming(), "{}", method.full_name());
    let service = method.parent_service();
    let alpha = has_option(pool, &method.options(), "alpha_method")
        || has_option(pool, &service.options(), "alpha_service");
    format!(
        "rpc  {}/{} {} -> {}{}{}\n",
        service.full_name(),
        method.name(),
        method.input().full_name(),
        mark(method.is_server_streaming(), "stream "),
        method.output().full_name(),
        mark(alpha, " alpha"),
    )
}

#[test]
fn the_contract_is_that_of_csi_1_13() {
    let pool = pool();
    let mut blocks: Vec<String> = Vec::new();
    blocks.extend(messages(&pool).iter().map(|message| describe_message(&pool, message)));
    blocks.extend(enums(&pool).iter().map(|kind| describe_enum(&pool, kind)));
    blocks.extend(methods(&pool).iter().map(|method| describe_method(&pool, method)));
    // Sorted by first line, so that the order of declarations does not matter.
    blocks.sort_by_key(|block| block.lines().next().map(str::to_owned));
    assert_eq!(blocks.concat(), include_str!("wire.golden"));
}

#[test]
fn the_contract_has_the_size_of_csi_1_13() {
    let pool = pool();
    let fields: usize = messages(&pool).iter().map(|message| message.fields().len()).sum();
    let values: usize = enums(&pool).iter().map(|kind| kind.values().len()).sum();
    let sizes = [
        ("services", pool.services().len(), 5),
        ("calls", methods(&pool).len(), 36),
        ("messages", messages(&pool).len(), 105),
        ("fields", fields, 221),
        ("enums", enums(&pool).len(), 10),
        ("enum values", values, 59),
    ];
    for (message, actual, expected) in sizes {
        assert_eq!(actual, expected, "{message}");
    }
}

#[test]
fn the_list_of_calls_is_the_contracts() {
    let declared: BTreeSet<(String, String)> = methods(&pool())
        .iter()
        .map(|method| {
            let service = method.parent_service();
            let path = format!("/{}/{}", service.full_name(), method.name());
            (path, service.name().to_owned())
        })
        .collect();
    let listed: BTreeSet<(String, String)> = Rpc::ALL
        .iter()
        .map(|rpc| (rpc.path().to_owned(), format!("{:?}", rpc.service())))
        .collect();
    assert_eq!(listed, declared);
    assert_eq!(Rpc::ALL.len(), 36);
    for rpc in Rpc::ALL {
        assert!(rpc.path().ends_with(&format!("/{}", rpc.name())), "{rpc}");
        assert_eq!(serde_json::to_value(rpc).unwrap(), rpc.name());
    }
}
