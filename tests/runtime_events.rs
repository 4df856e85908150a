//! The events of the runtime. Alone in its process: whether an event is wanted is remembered for all
//! threads, and other tests want none.
#![cfg(all(feature = "tracing", feature = "software"))]

use gpu_async_reactor::DeviceCaps;
use gpu_async_reactor::backend::software::{Fault, SoftwareDevice, Work};
use gpu_async_reactor::host::Runtime;

const SPIN: &str = "spin:backstop_us=2000";

#[test]
fn fallbacks_ends_and_faults_are_told_as_events() {
    use std::sync::{Arc, Mutex};
    use tracing::field::{Field, Visit};

    /// Keeps the level, the target and the fields of each event.
    #[derive(Clone, Default)]
    struct Recorder(Arc<Mutex<Vec<String>>>);
    struct Fields(String);
    impl Visit for Fields {
        fn record_debug(&mut self, field: &Field, value: &dyn std::fmt::Debug) {
            self.0 += &format!(" {field}={value:?}");
        }
    }
    impl tracing::Subscriber for Recorder {
        fn enabled(&self, _: &tracing::Metadata<'_>) -> bool {
            true
        }
        fn new_span(&self, _: &tracing::span::Attributes<'_>) -> tracing::span::Id {
            tracing::span::Id::from_u64(1)
        }
        fn record(&self, _: &tracing::span::Id, _: &tracing::span::Record<'_>) {}
        fn record_follows_from(&self, _: &tracing::span::Id, _: &tracing::span::Id) {}
        fn event(&self, event: &tracing::Event<'_>) {
            let mut fields =
                Fields(format!("{} {}", event.metadata().level(), event.metadata().target()));
            event.record(&mut fields);
            self.0.lock().unwrap().push(fields.0);
        }
        fn enter(&self, _: &tracing::span::Id) {}
        fn exit(&self, _: &tracing::span::Id) {}
    }

    let recorder = Recorder::default();
    tracing::subscriber::with_default(recorder.clone(), || {
        let caps = DeviceCaps { store: Err("none".to_string()) };
        let runtime = Runtime::builder(SPIN, "gpu-reactor").device(caps).build().unwrap();
        let device = SoftwareDevice::new().unwrap();
        let stream = device.stream().unwrap();
        runtime
            .block_on(async {
                let mut port = runtime.port(&stream);
                runtime.wait("step", &mut port).await.unwrap();
                stream.queue(Work::new().fault(Fault::new(1, "F"))).unwrap();
                runtime.wait("step", &mut port).await.unwrap_err();
            })
            .unwrap();
    });
    let told = recorder.0.lock().unwrap().clone();
    assert_eq!(told.len(), 4, "{told:#?}");
    assert!(told[0].starts_with("WARN gpu_async_reactor::resolve") && told[0].contains("fallback"));
    assert!(told[1].starts_with("INFO gpu_async_reactor::resolve") && told[1].contains("poll"));
    assert!(told[2].starts_with("TRACE gpu_async_reactor::wait") && told[2].contains("step"));
    assert!(told[3].starts_with("WARN gpu_async_reactor::wait") && told[3].contains("error"));
}
