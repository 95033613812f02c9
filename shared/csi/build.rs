//! Compiles `proto/csi/v1/csi.proto` in Rust, so that no protoc is needed here, and writes the
//! redaction of each message that holds a secret, by the `csi_secret` options found there.

use std::error::Error;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::{env, fs};

use protox::prost_reflect::{DescriptorPool, FieldDescriptor, MessageDescriptor};

/// CSI says of these that they may hold credentials, yet does not mark them as secret.
const MOUNT_FLAGS: &str = "csi.v1.VolumeCapability.MountVolume.mount_flags";
/// The one message besides requests through which a secret can pass; `redact` visits it by hand.
const CAPABILITY: &str = "csi.v1.VolumeCapability";

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

    tonic_prost_build::configure()
        // Ordered maps: equal messages have equal bytes, and print the same way each time.
        .btree_map(".")
        // These get a Debug that strikes secrets out, below.
        .skip_debug(secretive.iter().map(|message| format!(".{}", message.full_name())))
        // A plugin answers UNIMPLEMENTED to what it does not offer.
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

/// `impl Sensitive` for a request: shows each secret value in it to the visitor.
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
    writeln!(code, "fn visit(&self, {found}: &mut dyn FnMut(&str)) {{ {body} }} }}")?;
    Ok(())
}
