//! What cannot be opened, and why.

use crate::setup::device;
use gpu_async_reactor::ErrorCode;
use gpu_async_reactor::backend::vulkan::VulkanDevice;

crate::cases![
    the_validation_layer_is_listened_to,
    a_missing_loader_is_a_typed_error_that_names_it,
    a_library_that_is_no_loader_lacks_its_entry_point,
    a_device_that_is_not_there_is_unsupported_and_the_others_are_named,
    a_device_is_chosen_by_its_name_or_index,
];

fn a_missing_loader_is_a_typed_error_that_names_it() {
    let missing = VulkanDevice::builder().library("/nowhere/libvulkan.so.1");
    for error in [missing.list().unwrap_err(), missing.open().map(drop).unwrap_err()] {
        assert_eq!(error.code(), ErrorCode::LibraryMissing);
        assert!(error.to_string().contains("/nowhere/libvulkan.so.1"), "{error}");
    }
}

fn a_library_that_is_no_loader_lacks_its_entry_point() {
    if !cfg!(target_os = "linux") {
        return println!("    not asked: the name of another library is known on Linux alone");
    }
    let error = VulkanDevice::builder().library("libc.so.6").open().map(drop).unwrap_err();
    assert_eq!(error.code(), ErrorCode::SymbolMissing, "{error}");
    assert!(error.to_string().contains("vkGetInstanceProcAddr"), "{error}");
}

fn a_device_that_is_not_there_is_unsupported_and_the_others_are_named() {
    let name = device().name().to_string();
    let builder = VulkanDevice::builder;
    for missing in [builder().index(99), builder().named("no such device")] {
        let error = missing.open().map(drop).unwrap_err();
        assert_eq!(error.code(), ErrorCode::Unsupported);
        assert!(error.to_string().contains(&name), "{error}");
    }
}

fn a_device_is_chosen_by_its_name_or_index() {
    for found in VulkanDevice::builder().list().unwrap() {
        if found.usable.is_err() {
            continue;
        }
        let by_index = VulkanDevice::builder().index(found.index).open().unwrap();
        let by_name = VulkanDevice::builder().named(found.name.to_uppercase()).open().unwrap();
        assert_eq!((by_index.name(), by_name.name()), (&*found.name, &*found.name));
        assert!(found.api >= (1, 2, 0) && !found.kind.is_empty());
        assert_eq!((by_index.close(), by_name.close()), (Ok(0), Ok(0)));
    }
}

fn the_validation_layer_is_listened_to() {
    use gpu_async_reactor::backend::vulkan::ash::vk;
    let heard = std::sync::Arc::new(std::sync::Mutex::new(Vec::new()));
    let listener = heard.clone();
    let listen = move |text: &str| {
        listener.lock().unwrap().push(text.to_string());
        panic!("a listener's panic stays there");
    };
    std::panic::set_hook(Box::new(|_| {}));
    let device = VulkanDevice::builder().validation(listen).open().unwrap();
    // Not a transfer source and no other usage: a violation without consequences.
    let info = vk::BufferCreateInfo::default().size(64);
    // SAFETY: the layer refuses nothing, and the driver takes a buffer without usage for one.
    unsafe {
        let made = device.raw().create_buffer(&info, None);
        made.into_iter().for_each(|buffer| device.raw().destroy_buffer(buffer, None));
    }
    assert_eq!(device.close(), Ok(0));
    drop(std::panic::take_hook());
    let heard = heard.lock().unwrap();
    assert!(heard.iter().any(|text| text.contains("VUID-VkBufferCreateInfo-usage")), "{heard:?}");
}
