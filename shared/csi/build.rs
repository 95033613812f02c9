//! Compiles `proto/csi/v1/csi.proto` in Rust, so that no protoc is needed here, and writes the
//! redaction of each message that holds a secret, by the `csi_secret` options found there: in its
//! `Debug`, and in its JSON.

use std::error::Error;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::{env, fs};

use protox::prost_reflect::{DescriptorPool, FieldDescriptor, MessageDescriptor};
use tonic_prost_build::Builder;

/// CSI says that these may contain credentials, but does not mark them as secret.
const MOUNT_FLAGS: &str = "csi.v1.VolumeCapability.MountVolume.mount_flags";
/// The only message besides requests that can contain a secret; `redact` visits it by hand.
const CAPABILITY: &str = "csi.v1.VolumeCapability";
const TIMESTAMP: &str = "google.protobuf.Timestamp";

fn main() -> Result<(), Box<dyn Error>> {
    let include = Path::new("../../proto");
    println!("cargo::rerun-if-changed={}", include.display());
    println!("cargo::rerun-if-changed=build.rs");

    let mut compiler = protox::Compiler::new([include])?;
    compiler.include_imports(true).include_source_info(true).open_file("csi/v1/csi.proto")?;
    let pool = compiler.descriptor_pool();
    let secretive: Vec<_> = pool
        .all_messages()
        .filter(|message| message.fields().any(|field| is_secret(&pool, &field)))
        .collect();

    let shown = tonic_prost_build::configure().type_attribute(".", "#[derive(serde::Serialize)]");
    show(shown, &pool)
        // Ordered maps: equal messages have equal bytes, and print the same way each time.
        .btree_map(".")
        // These messages get a Debug without secrets, below.
        .skip_debug(secretive.iter().map(|message| format!(".{}", message.full_name())))
        // A plugin answers UNIMPLEMENTED to a call that it does not offer.
        .generate_default_stubs(true)
        .compile_fds(compiler.file_descriptor_set())?;

    let mut code = String::new();
    for message in &secretive {
        write_debug(&mut code, &pool, message)?;
    }
    for method in pool.services().flat_map(|service| service.methods().collect::<Vec<_>>()) {
        write_sensitive(&mut code, &pool, &method.input())?;
    }
    fs::write(PathBuf::from(env::var("OUT_DIR")?).join("redacted.rs"), code)?;
    Ok(())
}

/// Derives JSON for each message, with the contract's own names and without any secret.
fn show(mut builder: Builder, pool: &DescriptorPool) -> Builder {
    let by = |function: String| format!("#[serde(serialize_with = \"crate::shown::{function}\")]");
    for kind in pool.all_enums() {
        let names = "#[serde(rename_all = \"SCREAMING_SNAKE_CASE\")]";
        builder = builder.type_attribute(format!(".{}", kind.full_name()), names);
    }
    for oneof in pool.all_messages().flat_map(|message| message.oneofs().collect::<Vec<_>>()) {
        let names = "#[serde(rename_all = \"snake_case\")]";
        builder = builder.type_attribute(format!(".{}", oneof.full_name()), names);
    }
    for field in pool.all_messages().flat_map(|message| message.fields().collect::<Vec<_>>()) {
        let path = format!(".{}", field.full_name());
        if is_secret(pool, &field) {
            let function = if field.is_map() { "struck_values" } else { "struck_list" };
            builder = builder.field_attribute(path, by(function.to_owned()));
        } else if let Some(kind) = field.kind().as_enum() {
            let kind = rust_path(kind.full_name());
            builder = builder.field_attribute(path, by(format!("name::<{kind}, _>")));
        } else if field.kind().as_message().is_some_and(|kind| kind.full_name() == TIMESTAMP) {
            builder = builder.field_attribute(path, by("seconds".to_owned()));
        }
    }
    builder
}

/// `csi.v1.A.RPC.Type` is `crate::v1::a::rpc::Type` in Rust.
fn rust_path(full_name: &str) -> String {
    let name = full_name.strip_prefix("csi.v1.").unwrap_or(full_name);
    let (outer, own) = name.rsplit_once('.').map_or((None, name), |(o, n)| (Some(o), n));
    let modules = outer.into_iter().flat_map(|outer| outer.split('.')).map(snake_case);
    let path: Vec<_> = modules.chain([own.to_owned()]).collect();
    format!("crate::v1::{}", path.join("::"))
}

fn snake_case(name: &str) -> String {
    let mut snake = String::new();
    let mut before = None::<char>;
    for letter in name.chars() {
        if letter.is_uppercase() && before.is_some_and(char::is_lowercase) {
            snake.push('_');
        }
        snake.extend(letter.to_lowercase());
        before = Some(letter);
    }
    snake
}

fn is_secret(pool: &DescriptorPool, field: &FieldDescriptor) -> bool {
    let marked = pool
        .get_extension_by_name("csi.v1.csi_secret")
        .is_some_and(|option| field.options().get_extension(&option).as_bool().unwrap_or_default());
    marked || field.full_name() == MOUNT_FLAGS
}

/// `impl Debug` that prints every field but secrets.
fn write_debug(
    code: &mut String,
    pool: &DescriptorPool,
    message: &MessageDescriptor,
) -> Result<(), Box<dyn Error>> {
    let nested = message.parent_message().is_some();
    let path = if nested { "volume_capability::MountVolume" } else { message.name() };
    writeln!(code, "impl fmt::Debug for v1::{path} {{")?;
    writeln!(code, "fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {{")?;
    writeln!(code, "f.debug_struct({:?})", message.name())?;
    for field in message.fields() {
        let name = field.name();
        if is_secret(pool, &field) {
            writeln!(code, ".field({name:?}, &Struck(&self.{name}))")?;
        } else {
            writeln!(code, ".field({name:?}, &self.{name})")?;
        }
    }
    writeln!(code, ".finish() }} }}")?;
    Ok(())
}

/// Writes `impl Sensitive` for a request: it passes each secret value to the visitor, and returns
/// the id of the volume.
fn write_sensitive(
    code: &mut String,
    pool: &DescriptorPool,
    request: &MessageDescriptor,
) -> Result<(), Box<dyn Error>> {
    let mut body = String::new();
    for field in request.fields() {
        let name = field.name();
        if is_secret(pool, &field) {
            writeln!(body, "self.{name}.values().for_each(|value| found(value));")?;
        } else if field.kind().as_message().is_some_and(|kind| kind.full_name() == CAPABILITY) {
            writeln!(body, "self.{name}.iter().for_each(|inner| inner.visit(found));")?;
        }
    }
    let found = if body.is_empty() { "_" } else { "found" };
    writeln!(code, "impl Sensitive for v1::{} {{", request.name())?;
    writeln!(code, "fn visit(&self, {found}: &mut dyn FnMut(&str)) {{ {body} }}")?;
    if request.get_field_by_name("volume_id").is_some() {
        writeln!(code, "fn volume_id(&self) -> Option<&str> {{ Some(&self.volume_id) }}")?;
    }
    writeln!(code, "}}")?;
    Ok(())
}
