//! Compiles the wire types without a system `protoc`.

fn main() -> Result<(), Box<dyn std::error::Error>> {
    println!("cargo:rerun-if-changed=proto/cri.proto");
    let files = protox::compile(["proto/cri.proto"], ["proto"])?;
    tonic_prost_build::configure()
        .build_server(false)
        // Credentials must not reach a log by way of {:?}.
        .skip_debug(["runtime.v1.AuthConfig", "runtime.v1.PullImageRequest"])
        .compile_fds(files)?;
    Ok(())
}
