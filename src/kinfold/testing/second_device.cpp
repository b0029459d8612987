// A second device for the tests. Its memory is host memory and its kernels are those of the CPU, but torch sees another
// device: tensors of both cannot be mixed, generators belong to one of them, and whatever makes the host wait is noted.
//
// Storage, strides and views are torch's own. An operator gets CPU tensors that share the memory of its arguments, and
// its results get back the device; nothing is copied.

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/EmptyTensor.h>
#include <ATen/autocast_mode.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/detail/PrivateUse1HooksInterface.h>
#include <ATen/ops/_copy_from_native.h>
#include <ATen/ops/as_strided_native.h>
#include <ATen/ops/set_native.h>
#include <ATen/ops/unfold_native.h>
#include <ATen/ops/view_native.h>
#include <c10/core/CPUAllocator.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <torch/library.h>

#include <cstring>
#include <mutex>
#include <string>
#include <unordered_set>
#include <vector>

namespace {

const c10::Device kHost(c10::DeviceType::CPU);
const c10::Device kDevice(c10::DeviceType::PrivateUse1, 0);

bool is_on_device(const at::Tensor& tensor) {
  return tensor.defined() && tensor.device().type() == c10::DeviceType::PrivateUse1;
}

// ---- what makes the host wait -------------------------------------------------------------------------------------

std::mutex waits_mutex;
std::vector<std::string> waits;

void note_wait(const std::string& reason) {
  std::lock_guard<std::mutex> lock(waits_mutex);
  waits.push_back(reason);
}

// operators whose output has a size that only the device knows, or that return a Python number
const std::unordered_set<std::string> kWaiting = {
    "aten::nonzero", "aten::nonzero.out", "aten::masked_select", "aten::masked_select.out", "aten::_unique",
    "aten::_unique2", "aten::unique_dim", "aten::unique_consecutive", "aten::unique_dim_consecutive", "aten::bincount",
    "aten::equal", "aten::_local_scalar_dense", "aten::histogram.bin_ct"};

// ---- the same memory on the other device --------------------------------------------------------------------------

struct DeviceAllocator final : c10::Allocator {
  c10::DataPtr allocate(size_t bytes) override {
    c10::DataPtr host = c10::GetCPUAllocator()->allocate(bytes);
    void* data = host.get();
    return {data, host.release_context(), host.get_deleter(), kDevice};
  }
  c10::DeleterFnPtr raw_deleter() const override { return c10::GetCPUAllocator()->raw_deleter(); }
  void copy_data(void* to, const void* from, std::size_t bytes) const override { default_copy_data(to, from, bytes); }
};
DeviceAllocator allocator;

c10::Storage share_storage(const c10::Storage& storage, c10::Device device) {
  auto owner = new c10::Storage(storage);
  c10::DataPtr data(
      const_cast<void*>(storage.data()), owner, [](void* context) { delete static_cast<c10::Storage*>(context); },
      device);
  c10::Allocator* source = device.is_cpu() ? c10::GetCPUAllocator() : &allocator;
  return c10::Storage(c10::Storage::use_byte_size_t(), storage.nbytes(), std::move(data), source, /*resizable=*/true);
}

at::Tensor share(const at::Tensor& tensor, c10::Device device) {
  if (!tensor.defined() || tensor.device().type() == device.type()) return tensor;
  auto key = device.is_cpu() ? c10::DispatchKey::CPU : c10::DispatchKey::PrivateUse1;
  at::Tensor shared =
      at::detail::make_tensor<c10::TensorImpl>(share_storage(tensor.storage(), device), key, tensor.dtype());
  auto impl = shared.unsafeGetTensorImpl();
  impl->set_sizes_and_strides(tensor.sizes(), tensor.strides(), tensor.storage_offset());
  impl->_set_conj(tensor.is_conj());
  impl->_set_neg(tensor.is_neg());
  return shared;
}

// an operator may have resized or replaced the memory of an output
void take_over(const at::Tensor& tensor, const at::Tensor& host) {
  auto impl = tensor.unsafeGetTensorImpl();
  if (host.storage().data() != tensor.storage().data() || host.storage().nbytes() != tensor.storage().nbytes()) {
    impl->set_storage_keep_dtype(share_storage(host.storage(), kDevice));
  }
  if (host.sizes() != tensor.sizes() || host.strides() != tensor.strides() ||
      host.storage_offset() != tensor.storage_offset()) {
    impl->set_sizes_and_strides(host.sizes(), host.strides(), host.storage_offset());
  }
}

// ---- random numbers -----------------------------------------------------------------------------------------------

struct DeviceGenerator final : c10::GeneratorImpl {
  explicit DeviceGenerator(uint64_t seed = c10::default_rng_seed_val)
      : c10::GeneratorImpl(kDevice, c10::DispatchKeySet(c10::DispatchKey::PrivateUse1)),
        host(at::detail::createCPUGenerator(seed)) {}
  void set_current_seed(uint64_t seed) override { host.set_current_seed(seed); }
  void set_offset(uint64_t offset) override { host.set_offset(offset); }
  uint64_t get_offset() const override { return host.get_offset(); }
  uint64_t current_seed() const override { return host.current_seed(); }
  uint64_t seed() override { return host.seed(); }
  void set_state(const c10::TensorImpl& state) override { host.unsafeGetGeneratorImpl()->set_state(state); }
  c10::intrusive_ptr<c10::TensorImpl> get_state() const override { return host.unsafeGetGeneratorImpl()->get_state(); }
  static c10::DeviceType device_type() { return c10::DeviceType::PrivateUse1; }
  DeviceGenerator* clone_impl() const override {
    auto copied = new DeviceGenerator();
    copied->host = host.clone();
    return copied;
  }
  at::Generator host;
};

at::Generator& default_generator() {
  static at::Generator generator = at::make_generator<DeviceGenerator>();
  return generator;
}

// ---- every operator that has no kernel of its own -----------------------------------------------------------------

class Call {
 public:
  Call(const c10::OperatorHandle& op, torch::jit::Stack* stack)
      : schema_(op.schema()), name_(c10::toString(op.operator_name())), stack_(stack) {
    first_ = stack->size() - schema_.arguments().size();
    // an index may lie on the host, as with CUDA
    bool is_index = name_.rfind("aten::index", 0) == 0 || name_.rfind("aten::_index_put_impl_", 0) == 0 ||
        name_.rfind("aten::_unsafe_index", 0) == 0;
    accepts_host_ = is_index;
    note_waiting();
    for (size_t i = 0; i < schema_.arguments().size(); ++i) {
      c10::IValue& argument = (*stack_)[first_ + i];
      originals_.push_back(argument);
      argument = to_host(argument, schema_.arguments()[i].name());
    }
    if (found_device_ && found_host_ && !accepts_host_) {
      TORCH_CHECK(false, "Expected all tensors to be on the same device, but found at least two devices, ", kDevice,
                  " and cpu! (when calling ", name_, ")");
    }
    TORCH_CHECK(found_device_ || !found_generator_ || !found_any_host_,
                "Expected a 'cpu' device type for generator but found '", kDevice, "' (when calling ", name_, ")");
    hosts_.assign(stack_->begin() + static_cast<std::ptrdiff_t>(first_), stack_->end());
  }

  void finish() {
    for (size_t i = 0; i < originals_.size(); ++i) {
      const auto* alias = schema_.arguments()[i].alias_info();
      if (alias != nullptr && alias->isWrite()) write_back(originals_[i], hosts_[i]);
    }
    size_t count = schema_.returns().size();
    size_t first = stack_->size() - count;
    for (size_t i = 0; i < count; ++i) {
      c10::IValue& result = (*stack_)[first + i];
      result = to_device(result);
    }
  }

 private:
  void note_waiting() {
    if (kWaiting.count(name_) != 0) note_wait(name_);
    if (name_ == "aten::repeat_interleave.Tensor" && (*stack_)[first_ + 1].isNone()) note_wait(name_);
    if (name_.rfind("aten::_index_put_impl_", 0) == 0 && (*stack_)[first_ + 2].toTensor().numel() != 1) {
      const at::IValue& entries = (*stack_)[first_ + 1];
      for (const at::IValue& entry : entries.toListRef()) {
        if (entry.isTensor() && entry.toTensor().defined() &&
            (entry.toTensor().scalar_type() == at::kBool || entry.toTensor().scalar_type() == at::kByte)) {
          note_wait(name_ + " with a mask");
        }
      }
    }
  }

  at::Tensor to_host(const at::Tensor& tensor) {
    if (!tensor.defined()) return tensor;
    if (is_on_device(tensor)) {
      found_device_ = true;
      return share(tensor, kHost);
    }
    found_any_host_ = true;
    if (tensor.dim() > 0) {
      found_host_ = true;
      if (accepts_host_) note_wait("copy to the device (" + name_ + ")");
    }
    return tensor;
  }

  c10::IValue to_host(const c10::IValue& value, const std::string& argument) {
    if (value.isTensor()) return to_host(value.toTensor());
    if (value.isTensorList()) {
      c10::List<at::Tensor> shared;
      for (const at::Tensor& tensor : value.toTensorVector()) shared.push_back(to_host(tensor));
      return shared;
    }
    if (value.isOptionalTensorList()) {
      c10::List<std::optional<at::Tensor>> shared;
      for (const std::optional<at::Tensor>& tensor : value.toOptionalTensorList()) {
        shared.push_back(tensor.has_value() ? std::optional<at::Tensor>(to_host(*tensor)) : std::nullopt);
      }
      return shared;
    }
    if (value.isDevice()) return value.toDevice().type() == kDevice.type() ? c10::IValue(kHost) : value;
    if (value.isGenerator()) {
      at::Generator generator = value.toGenerator();
      TORCH_CHECK(generator.device().type() == kDevice.type(), "Expected a '", kDevice.str(),
                  "' device type for generator but found '", generator.device().str(), "'");
      found_generator_ = true;
      return at::get_generator_or_default<DeviceGenerator>(generator, generator)->host;
    }
    if (value.isNone() && argument == "generator") {
      return at::get_generator_or_default<DeviceGenerator>(default_generator(), default_generator())->host;
    }
    return value;
  }

  void write_back(const c10::IValue& original, const c10::IValue& host) {
    if (original.isTensor()) {
      if (is_on_device(original.toTensor())) take_over(original.toTensor(), host.toTensor());
    } else if (original.isTensorList()) {
      auto tensors = original.toTensorVector();
      auto hosts = host.toTensorVector();
      for (size_t i = 0; i < tensors.size(); ++i) {
        if (is_on_device(tensors[i])) take_over(tensors[i], hosts[i]);
      }
    }
  }

  at::Tensor to_device(const at::Tensor& result) {
    for (size_t i = 0; i < hosts_.size(); ++i) {  // in-place operators and out= return their argument
      if (hosts_[i].isTensor() && hosts_[i].toTensor().is_same(result)) return originals_[i].toTensor();
    }
    return share(result, kDevice);
  }

  c10::IValue to_device(const c10::IValue& value) {
    if (value.isTensor()) return to_device(value.toTensor());
    if (value.isTensorList()) {
      c10::List<at::Tensor> shared;
      for (const at::Tensor& tensor : value.toTensorVector()) shared.push_back(to_device(tensor));
      return shared;
    }
    return value;
  }

  const c10::FunctionSchema& schema_;
  std::string name_;
  torch::jit::Stack* stack_;
  size_t first_ = 0;
  bool accepts_host_ = false, found_device_ = false, found_host_ = false, found_any_host_ = false;
  bool found_generator_ = false;
  std::vector<c10::IValue> originals_, hosts_;
};

void compute_on_host(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  Call call(op, stack);
  {
    c10::impl::ExcludeDispatchKeyGuard no_autocast(c10::autocast_dispatch_keyset);
    at::AutoDispatchBelowADInplaceOrView below_autograd;
    op.callBoxed(stack);
  }
  call.finish();
}

at::Tensor& copy_(at::Tensor& self, const at::Tensor& source, bool non_blocking) {
  if (!is_on_device(self)) {
    note_wait("copy to the host");
  } else if (!is_on_device(source) && source.dim() > 0 && !non_blocking) {
    note_wait("copy to the device");
  }
  static auto op = c10::Dispatcher::singleton()
                       .findSchemaOrThrow("aten::copy_", "")
                       .typed<at::Tensor&(at::Tensor&, const at::Tensor&, bool)>();
  at::Tensor target = share(self, kHost);
  at::AutoDispatchBelowADInplaceOrView below_autograd;
  op.call(target, share(source, kHost), non_blocking);
  return self;
}

at::Tensor empty(c10::IntArrayRef size, std::optional<at::ScalarType> dtype, std::optional<at::Layout>,
                 std::optional<at::Device>, std::optional<bool>, std::optional<at::MemoryFormat> format) {
  return at::detail::empty_generic(size, &allocator, c10::DispatchKeySet(c10::DispatchKey::PrivateUse1),
                                   c10::dtype_or_default(dtype), format);
}

at::Tensor empty_strided(c10::IntArrayRef size, c10::IntArrayRef stride, std::optional<at::ScalarType> dtype,
                         std::optional<at::Layout>, std::optional<at::Device>, std::optional<bool>) {
  return at::detail::empty_strided_generic(size, stride, &allocator,
                                           c10::DispatchKeySet(c10::DispatchKey::PrivateUse1),
                                           c10::dtype_or_default(dtype));
}

// forward-mode derivatives ask for zeros without memory; here they are ordinary zeros
at::Tensor zero_tensor(c10::IntArrayRef size, std::optional<at::ScalarType> dtype, std::optional<at::Layout> layout,
                       std::optional<at::Device> device, std::optional<bool> pinned) {
  at::Tensor zeros = empty(size, dtype, layout, device, pinned, std::nullopt);
  std::memset(zeros.mutable_data_ptr(), 0, zeros.nbytes());
  return zeros;
}

at::Tensor& set_storage(at::Tensor& self, at::Storage source, int64_t offset, c10::IntArrayRef size,
                        c10::IntArrayRef stride) {
  return at::native::set_storage_cpu_(self, std::move(source), offset, size, stride);
}

at::Tensor& set_whole_storage(at::Tensor& self, at::Storage source) {
  return at::native::set_(self, std::move(source));
}

// ---- mixed precision ----------------------------------------------------------------------------------------------

template <bool lower>
void cast_and_call(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  c10::impl::ExcludeDispatchKeyGuard no_autocast(c10::DispatchKey::AutocastPrivateUse1);
  auto dtype = lower ? at::autocast::get_autocast_dtype(c10::DeviceType::PrivateUse1) : at::kFloat;
  auto cast = [&](const at::Tensor& tensor) {
    bool is_eligible = is_on_device(tensor) && tensor.is_floating_point() && tensor.scalar_type() != at::kDouble;
    return is_eligible ? at::autocast::cached_cast(dtype, tensor, c10::DeviceType::PrivateUse1) : tensor;
  };
  size_t count = op.schema().arguments().size();
  for (size_t i = stack->size() - count; i < stack->size(); ++i) {
    c10::IValue& argument = (*stack)[i];
    if (argument.isTensor()) {
      argument = cast(argument.toTensor());
    } else if (argument.isTensorList()) {
      c10::List<at::Tensor> tensors;
      for (const at::Tensor& tensor : argument.toTensorVector()) tensors.push_back(cast(tensor));
      argument = tensors;
    }
  }
  op.callBoxed(stack);
}

// ---- what torch asks of a device ----------------------------------------------------------------------------------

struct Hooks final : at::PrivateUse1HooksInterface {
  bool isBuilt() const override { return true; }
  bool isAvailable() const override { return true; }
  bool hasPrimaryContext(c10::DeviceIndex) const override { return true; }
  c10::DeviceIndex deviceCount() const override { return 1; }
  c10::DeviceIndex getCurrentDevice() const override { return 0; }
  void setCurrentDevice(c10::DeviceIndex) const override {}
  c10::DeviceIndex exchangeDevice(c10::DeviceIndex) const override { return 0; }
  c10::DeviceIndex maybeExchangeDevice(c10::DeviceIndex) const override { return 0; }
  const at::Generator& getDefaultGenerator(c10::DeviceIndex) const override { return default_generator(); }
  at::Generator getNewGenerator(c10::DeviceIndex) const override { return at::make_generator<DeviceGenerator>(); }
  void resizePrivateUse1Bytes(const c10::Storage& storage, size_t bytes) const override {
    c10::DataPtr larger = allocator.allocate(bytes);
    std::memcpy(larger.get(), storage.data(), std::min(bytes, storage.nbytes()));
    storage.unsafeGetStorageImpl()->set_data_ptr_noswap(std::move(larger));
    storage.unsafeGetStorageImpl()->set_nbytes(bytes);
  }
};

// the first of one device: index 0, not "the current one"
struct Guard final : c10::impl::NoOpDeviceGuardImpl<c10::DeviceType::PrivateUse1> {
  c10::Device exchangeDevice(c10::Device) const override { return kDevice; }
  c10::Device getDevice() const override { return kDevice; }
  c10::Stream getStream(c10::Device) const noexcept override { return c10::Stream(c10::Stream::DEFAULT, kDevice); }
  c10::Stream getNewStream(c10::Device, int) const override { return c10::Stream(c10::Stream::DEFAULT, kDevice); }
  c10::Stream exchangeStream(c10::Stream) const noexcept override { return c10::Stream(c10::Stream::DEFAULT, kDevice); }
};
C10_REGISTER_GUARD_IMPL(PrivateUse1, Guard)

bool register_device() {
  at::RegisterPrivateUse1HooksInterface(new Hooks());
  c10::SetAllocator(c10::DeviceType::PrivateUse1, &allocator);
  return true;
}
const bool registered = register_device();

}  // namespace

TORCH_LIBRARY_IMPL(_, PrivateUse1, m) { m.fallback(torch::CppFunction::makeFromBoxedFunction<&compute_on_host>()); }

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("empty.memory_format", empty);
  m.impl("empty_strided", empty_strided);
  m.impl("_efficientzerotensor", zero_tensor);
  m.impl("copy_", copy_);
  m.impl("as_strided", at::native::as_strided_tensorimpl);
  m.impl("view", at::native::view);
  m.impl("unfold", at::native::unfold);
  m.impl("set_.source_Storage_storage_offset", set_storage);
  m.impl("set_.source_Storage", set_whole_storage);
  m.impl("set_.source_Tensor", at::native::set_tensor_);
  // torch would ask for convolution_overrideable
  m.impl("convolution", torch::CppFunction::makeFromBoxedFunction<&compute_on_host>());
  m.impl("convolution_backward", torch::CppFunction::makeFromBoxedFunction<&compute_on_host>());
}

TORCH_LIBRARY_IMPL(_, AutocastPrivateUse1, m) { m.fallback(torch::CppFunction::makeFallthrough()); }

TORCH_LIBRARY_IMPL(aten, AutocastPrivateUse1, m) {
  for (const char* name : {"conv1d", "conv2d", "matmul", "mm", "addmm", "mv", "addmv", "bmm", "baddbmm", "addbmm",
                           "linear", "einsum", "prelu", "scaled_dot_product_attention"}) {
    m.impl(name, torch::CppFunction::makeFromBoxedFunction<&cast_and_call<true>>());
  }
  for (const char* name : {"exp", "log", "log1p", "pow.Tensor_Scalar", "rsqrt", "layer_norm", "softplus", "cdist",
                           "cosine_similarity", "nll_loss", "binary_cross_entropy_with_logits"}) {
    m.impl(name, torch::CppFunction::makeFromBoxedFunction<&cast_and_call<false>>());
  }
}

TORCH_LIBRARY(second_device, m) {
  m.def("take_waits() -> str[]", [] {
    std::lock_guard<std::mutex> lock(waits_mutex);
    std::vector<std::string> taken;
    taken.swap(waits);
    return taken;
  });
  m.def("default_generator() -> Generator?", [] { return default_generator(); });
}
