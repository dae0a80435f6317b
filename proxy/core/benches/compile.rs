//! What deciding costs at 10,000 Services of 10 endpoints: everything, and one change.

#![allow(clippy::unwrap_used, missing_docs, reason = "a benchmark")]

use std::hint::black_box;

use criterion::{Criterion, criterion_group, criterion_main};
use k8s_openapi::api::core::v1::Service;
use k8s_openapi::api::discovery::v1::EndpointSlice;
use seaway_proxy_core::{Compiler, Model, Node, compile};
use serde_json::json;

const SERVICES: usize = 10_000;
const ENDPOINTS: usize = 10;

fn service(n: usize) -> Service {
    let ip = format!("10.{}.{}.{}", 96 + n / 65536, n / 256 % 256, n % 256);
    let object = json!({
        "metadata": {"namespace": "ns", "name": format!("svc{n}")},
        "spec": {"clusterIP": ip, "clusterIPs": [ip], "type": "NodePort",
                 "ports": [{"port": 80, "nodePort": 20_000 + n}]},
    });
    serde_json::from_value(object).unwrap()
}

fn slice(n: usize, shift: usize) -> EndpointSlice {
    let endpoints: Vec<_> = (0..ENDPOINTS)
        .map(|i| {
            let pod = n * ENDPOINTS + i + shift;
            let ip = format!("10.{}.{}.{}", 128 + pod / 65536, pod / 256 % 256, pod % 256);
            json!({"addresses": [ip], "nodeName": format!("n{}", pod % 100),
                   "conditions": {"ready": true, "serving": true}})
        })
        .collect();
    let object = json!({
        "metadata": {"namespace": "ns", "name": format!("svc{n}-x"),
                     "labels": {"kubernetes.io/service-name": format!("svc{n}")}},
        "addressType": "IPv4", "ports": [{"name": "", "port": 8080}], "endpoints": endpoints,
    });
    serde_json::from_value(object).unwrap()
}

fn full(bench: &mut Criterion) {
    let mut model = Model::new();
    for n in 0..SERVICES {
        model.apply_service(&service(n));
        model.apply_slice(&slice(n, 0));
    }
    let node = Node::named("n1");
    bench.bench_function("compile 10k x 10", |b| {
        b.iter(|| black_box(compile(&model, &node)));
    });
    bench.bench_function("follow 10k x 10 from nothing", |b| {
        b.iter_batched(
            || model.clone(),
            |mut model| {
                let mut compiler = Compiler::new(node.clone());
                compiler.update(&mut model, &node);
                black_box(compiler)
            },
            criterion::BatchSize::PerIteration,
        );
    });
    let mut compiler = Compiler::new(node.clone());
    compiler.update(&mut model, &node);
    let slices = [slice(SERVICES / 2, 0), slice(SERVICES / 2, 1)];
    let mut turn = 0;
    bench.bench_function("one endpoint change among 10k x 10", |b| {
        b.iter(|| {
            turn ^= 1;
            assert!(model.apply_slice(&slices[turn]));
            black_box(compiler.update(&mut model, &node));
        });
    });
}

criterion_group! {
    name = benches;
    config = Criterion::default().sample_size(20);
    targets = full
}
criterion_main!(benches);
