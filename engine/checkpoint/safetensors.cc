// SPDX-License-Identifier: LGPL-2.1-or-later
#include "checkpoint/safetensors.h"

#include <glib.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <system_error>
#include <utility>

#include "base/ensure_memory.h"
#include "base/mapped_file.h"
#include "checkpoint/json_reader.h"

namespace qtts {
namespace {

using nlohmann::json;

// Headers of the released models have 50 kB. The limit protects memory against hostile files.
constexpr uint64_t kMaxHeaderBytes = uint64_t{16} << 20;
constexpr size_t kMaxRank = 8;
constexpr std::string_view kExtension = ".safetensors";

// Returns the bytes per element of a dtype, given in the file's spelling; 0 if unknown.
uint64_t ElementBytes(std::string_view dtype) {
  static constexpr std::pair<std::string_view, uint64_t> kSizes[] = {
      {"F32", 4}, {"BF16", 2}, {"F16", 2}, {"F64", 8}, {"I64", 8},  {"I32", 4},     {"I16", 2},    {"I8", 1},
      {"U64", 8}, {"U32", 4},  {"U16", 2}, {"U8", 1},  {"BOOL", 1}, {"F8_E4M3", 1}, {"F8_E5M2", 1}};
  const auto* it = std::find_if(std::begin(kSizes), std::end(kSizes), [&](const auto& s) { return s.first == dtype; });
  return it == std::end(kSizes) ? 0 : it->second;
}

std::optional<DType> ReadableDType(std::string_view dtype) {
  for (const DType readable : {DType::kF32, DType::kF16, DType::kBF16}) {
    if (DTypeName(readable) == dtype) return readable;
  }
  return std::nullopt;
}

std::string ShapeText(std::span<const int64_t> shape) {
  std::string text = "[";
  for (const int64_t size : shape) text.append(text.size() > 1 ? ", " : "").append(std::to_string(size));
  return text + "]";
}

// Detects other formats that are mistaken for safetensors, by their first bytes.
std::optional<Status> OtherFormat(std::span<const std::byte> file, const std::string& name) {
  const auto begins = [&](std::string_view magic) {
    return file.size() >= magic.size() && std::memcmp(file.data(), magic.data(), magic.size()) == 0;
  };
  if (begins("GGUF")) {
    return Status::Unsupported(name + ": is a GGUF file; use the safetensors checkpoint as published");
  }
  if (begins("version https://git-lfs")) {
    return Status::CorruptModel(name + ": is a Git LFS pointer, not the weights; fetch them with 'git lfs pull'");
  }
  return std::nullopt;
}

// Returns the number of elements; none on overflow.
std::optional<uint64_t> Product(std::span<const int64_t> shape) {
  uint64_t product = 1;
  for (const int64_t size : shape) {
    if (__builtin_mul_overflow(product, static_cast<uint64_t>(size), &product)) return std::nullopt;
  }
  return product;
}

// Parses and checks one entry by itself: well-formed, and as many bytes as its shape says.
Result<TensorEntry> ParseEntry(const json& value, const std::string& where) {
  const auto field = [&](const char* key) -> const json& {
    static const json kNone;
    const auto it = value.is_object() ? value.find(key) : value.end();
    return it == value.end() ? kNone : *it;
  };
  const json& dtype = field("dtype");
  const json& shape = field("shape");
  const json& offsets = field("data_offsets");
  if (!dtype.is_string() || !shape.is_array() || !offsets.is_array()) {
    return Status::CorruptModel(where + " lacks a dtype, a shape or data_offsets");
  }
  TensorEntry entry;
  entry.dtype = dtype.get<std::string>();
  if (shape.size() > kMaxRank) {
    return Status::CorruptModel(where + " has " + std::to_string(shape.size()) + " dimensions, expected at most " +
                                std::to_string(kMaxRank));
  }
  for (const json& size : shape) {
    if (!size.is_number_unsigned() || size.get<uint64_t>() > static_cast<uint64_t>(INT64_MAX)) {
      return Status::CorruptModel(where + " has a dimension that is not a size");
    }
    entry.shape.push_back(size.get<int64_t>());
  }
  if (offsets.size() != 2 || !offsets[0].is_number_unsigned() || !offsets[1].is_number_unsigned() ||
      offsets[0].get<uint64_t>() > offsets[1].get<uint64_t>()) {
    return Status::CorruptModel(where + " has data_offsets that are not a begin and an end");
  }
  entry.begin = offsets[0].get<uint64_t>();
  entry.end = offsets[1].get<uint64_t>();

  const std::optional<uint64_t> elements = Product(entry.shape);
  uint64_t bytes = 0;
  const uint64_t element_bytes = ElementBytes(entry.dtype);
  if (!elements.has_value() || __builtin_mul_overflow(*elements, std::max<uint64_t>(element_bytes, 1), &bytes)) {
    return Status::CorruptModel(where + " has shape " + ShapeText(entry.shape) + ", which is too large");
  }
  if (element_bytes != 0 && bytes != entry.end - entry.begin) {
    return Status::CorruptModel(where + " has " + std::to_string(entry.end - entry.begin) + " bytes, expected " +
                                std::to_string(bytes) + " for " + entry.dtype + " " + ShapeText(entry.shape));
  }
  return entry;
}

// Checks that the entries cover each byte of the data section once, as the format requires.
Status CheckLayout(const SafetensorsHeader& header, uint64_t data_bytes, const std::string& name) {
  using Item = std::pair<const std::string, TensorEntry>;
  std::vector<const Item*> order;
  order.reserve(header.entries.size());
  for (const Item& item : header.entries) order.push_back(&item);
  std::sort(order.begin(), order.end(), [](const Item* a, const Item* b) {
    return std::pair(a->second.begin, a->second.end) < std::pair(b->second.begin, b->second.end);
  });
  uint64_t end = 0;
  const Item* previous = nullptr;
  for (const Item* item : order) {
    const std::string tensor = name + ": tensor " + Quoted(item->first);
    if (item->second.begin < end) return Status::CorruptModel(tensor + " overlaps with " + Quoted(previous->first));
    if (item->second.begin > end) {
      return Status::CorruptModel(tensor + " begins at byte " + std::to_string(item->second.begin) +
                                  " of the data, expected " + std::to_string(end) + ", where the one before ends");
    }
    if (item->second.end > data_bytes) {
      return Status::CorruptModel(tensor + " ends at byte " + std::to_string(item->second.end) +
                                  " of the data, but the file holds only " + std::to_string(data_bytes) +
                                  ": it is truncated");
    }
    end = item->second.end;
    previous = item;
  }
  if (end != data_bytes) {
    return Status::CorruptModel(name + ": holds " + std::to_string(data_bytes) + " bytes of data, expected " +
                                std::to_string(end) + ": something follows the last tensor");
  }
  return Status::Ok();
}

// The files of a model in `folder`: a single file, or the shards of an index.
struct TensorFiles {
  std::vector<std::string> names;            // plain file names
  std::map<std::string, std::string> shard;  // tensor -> file name, from the index; empty without one
};

Result<TensorFiles> ReadIndex(const std::string& path) {
  QTTS_ASSIGN_OR_RETURN(const std::string text, ReadSmallFile(path));
  QTTS_ASSIGN_OR_RETURN(const json document, ParseJson(text, path));
  const auto weight_map = document.is_object() ? document.find("weight_map") : document.end();
  if (weight_map == document.end() || !weight_map->is_object() || weight_map->empty()) {
    return Status::CorruptModel(path + ": weight_map is missing, expected an object that names each tensor's file");
  }
  TensorFiles files;
  for (const auto& [tensor, file] : weight_map->items()) {
    if (!file.is_string()) {
      return Status::CorruptModel(path + ": weight_map gives tensor " + Quoted(tensor) + " no file name");
    }
    const auto& name = file.get_ref<const std::string&>();
    // Only plain names: an index must not refer outside its folder.
    if (name.find('/') != std::string::npos || name.find('\0') != std::string::npos || !name.ends_with(kExtension)) {
      return Status::CorruptModel(path + ": tensor " + Quoted(tensor) + " lies in " + Quoted(name) +
                                  ", expected a .safetensors file of the same folder");
    }
    files.shard.emplace(tensor, name);
    files.names.push_back(name);
  }
  std::sort(files.names.begin(), files.names.end());
  files.names.erase(std::unique(files.names.begin(), files.names.end()), files.names.end());
  return files;
}

Status NoWeights(const std::string& folder, const std::string& stem) {
  const std::string expected = folder + ": has neither " + stem + std::string(kExtension) + " nor " + stem +
                               std::string(kExtension) + ".index.json";
  std::error_code error;
  for (std::filesystem::directory_iterator it(folder, error), end; !error && it != end; it.increment(error)) {
    const std::string name = it->path().filename().string();
    if (name.ends_with(".gguf") || name.ends_with(".bin") || name.ends_with(".pt") || name.ends_with(".pth")) {
      return Status::Unsupported(expected + "; weights in another format (" + Quoted(name) +
                                 ") cannot be read, use the checkpoint as published");
    }
  }
  return Status::NotFound(expected + "; download the whole model folder");
}

}  // namespace

std::string_view DTypeName(DType dtype) {
  switch (dtype) {
    case DType::kF32:
      return "F32";
    case DType::kF16:
      return "F16";
    case DType::kBF16:
      return "BF16";
  }
  return "";
}

size_t DTypeBytes(DType dtype) { return dtype == DType::kF32 ? 4 : 2; }

int64_t TensorView::elements() const {
  int64_t product = 1;
  for (const int64_t size : shape) product *= size;
  return product;
}

Result<SafetensorsHeader> SafetensorsHeader::Parse(std::span<const std::byte> file, uint64_t file_size,
                                                   const std::string& name) {
  if (std::optional<Status> other = OtherFormat(file, name)) return *other;
  constexpr uint64_t kLengthBytes = 8;
  if (file.size() < kLengthBytes || file_size < file.size()) {
    return Status::CorruptModel(name + ": is " + std::to_string(file_size) +
                                " bytes long, expected at least the 8 that a safetensors file begins with");
  }
  uint64_t length = 0;
  for (uint64_t i = 0; i < kLengthBytes; ++i) length |= std::to_integer<uint64_t>(file[i]) << (8 * i);
  if (length > kMaxHeaderBytes) {
    return Status::CorruptModel(name + ": says that its header has " + std::to_string(length) +
                                " bytes, expected at most " + std::to_string(kMaxHeaderBytes) +
                                "; this is not a safetensors file");
  }
  if (length > file.size() - kLengthBytes) {
    return Status::CorruptModel(name + ": ends inside its header of " + std::to_string(length) +
                                " bytes: it is truncated");
  }
  const std::string_view text(reinterpret_cast<const char*>(file.data()) + kLengthBytes, length);
  QTTS_ASSIGN_OR_RETURN(const json document, ParseJson(text, name + " (header)"));
  if (!document.is_object()) return Status::CorruptModel(name + ": its header is not a JSON object");

  SafetensorsHeader header;
  header.data_offset = kLengthBytes + length;
  for (const auto& [key, value] : document.items()) {
    if (key == "__metadata__") {
      for (const auto& [field, content] : value.items()) {
        if (content.is_string()) header.metadata.emplace(field, content.get<std::string>());
      }
      continue;
    }
    QTTS_ASSIGN_OR_RETURN(TensorEntry entry, ParseEntry(value, name + ": tensor " + Quoted(key)));
    header.entries.emplace(key, std::move(entry));
  }
  QTTS_RETURN_IF_ERROR(CheckLayout(header, file_size - header.data_offset, name));
  return header;
}

struct TensorStore::Impl {
  struct File {
    std::string path;
    MappedFile mapping;
    SafetensorsHeader header;
  };
  struct Location {
    const File* file;
    const TensorEntry* entry;
  };

  std::string description;  // files searched for tensors, for messages
  std::vector<std::unique_ptr<File>> files;
  std::map<std::string_view, Location> tensors;  // the names are stored in the files' headers
};

TensorStore::TensorStore(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
TensorStore::~TensorStore() = default;

Result<std::shared_ptr<const TensorStore>> TensorStore::Open(const std::string& folder, const std::string& stem) {
  TensorFiles files;
  const std::string single = stem + std::string(kExtension);
  const std::string index = folder + "/" + single + ".index.json";
  std::error_code error;
  auto impl = std::make_unique<Impl>();
  impl->description = folder + "/" + single;
  if (std::filesystem::exists(impl->description, error)) {
    files.names.push_back(single);
  } else if (std::filesystem::exists(index, error)) {
    QTTS_ASSIGN_OR_RETURN(files, ReadIndex(index));
    impl->description = index;
  } else {
    return NoWeights(folder, stem);
  }

  for (const std::string& name : files.names) {
    std::string path = folder + "/";
    path += name;
    QTTS_ASSIGN_OR_RETURN(MappedFile mapping, MappedFile::Open(path));
    QTTS_ASSIGN_OR_RETURN(SafetensorsHeader header,
                          SafetensorsHeader::Parse(mapping.bytes(), mapping.bytes().size(), path));
    auto file = std::make_unique<Impl::File>(Impl::File{path, std::move(mapping), std::move(header)});
    for (const auto& [tensor, entry] : file->header.entries) {
      const auto [it, added] = impl->tensors.emplace(tensor, Impl::Location{file.get(), &entry});
      if (!added) {
        return Status::CorruptModel(path + ": tensor " + Quoted(tensor) + " is also in " + it->second.file->path);
      }
    }
    impl->files.push_back(std::move(file));
  }
  for (const auto& [tensor, name] : files.shard) {
    std::string path = folder + "/";
    path += name;
    const auto it = impl->tensors.find(tensor);
    if (it == impl->tensors.end() || it->second.file->path != path) {
      return Status::CorruptModel(
          path.append(": tensor ").append(Quoted(tensor)).append(" is missing, expected there by ") + index);
    }
  }
  return std::shared_ptr<const TensorStore>(new TensorStore(std::move(impl)));
}

Result<TensorView> TensorStore::Get(std::string_view name, std::span<const int64_t> shape) const {
  const auto it = impl_->tensors.find(name);
  if (it == impl_->tensors.end()) {
    return Status::CorruptModel(impl_->description + ": tensor " + Quoted(name) + " is missing, expected shape " +
                                ShapeText(shape));
  }
  const Impl::File& file = *it->second.file;
  const TensorEntry& entry = *it->second.entry;
  const std::string where = file.path + ": tensor " + Quoted(name);
  if (!std::equal(entry.shape.begin(), entry.shape.end(), shape.begin(), shape.end())) {
    return Status::CorruptModel(where + " has shape " + ShapeText(entry.shape) + ", expected " + ShapeText(shape));
  }
  const std::optional<DType> dtype = ReadableDType(entry.dtype);
  if (!dtype.has_value()) {
    return Status::Unsupported(where + " has dtype " + Quoted(entry.dtype) + ", expected BF16, F16 or F32");
  }
  const std::byte* data = file.mapping.bytes().data() + file.header.data_offset + entry.begin;
  if (reinterpret_cast<uintptr_t>(data) % DTypeBytes(*dtype) != 0) {
    return Status::CorruptModel(where + " begins at byte " + std::to_string(file.header.data_offset + entry.begin) +
                                " of the file, expected a multiple of " + std::to_string(DTypeBytes(*dtype)) +
                                "; write the file again with a current safetensors library");
  }
  return TensorView{*dtype, entry.shape, data};
}

void TensorStore::Release(std::span<const std::byte> part) const {
  for (const auto& file : impl_->files) {
    const std::span<const std::byte> bytes = file->mapping.bytes();
    const std::less_equal<> in_order;
    if (in_order(bytes.data(), part.data()) && in_order(part.data() + part.size(), bytes.data() + bytes.size())) {
      file->mapping.Release(part);
    }
  }
}

std::string_view TensorStore::NameOf(const void* data) const {
  for (const auto& [name, location] : impl_->tensors) {
    const std::byte* const section = location.file->mapping.bytes().data() + location.file->header.data_offset;
    if (section + location.entry->begin == data && location.entry->end > location.entry->begin) return name;
  }
  return {};
}

std::string TensorStore::Identity() const {
  std::string identity;
  for (const auto& file : impl_->files) {
    const auto header = file->mapping.bytes().first(file->header.data_offset);
    EnsureMemory(kSmallCallBytes);
    const std::unique_ptr<gchar, decltype(&g_free)> hash(
        g_compute_checksum_for_data(G_CHECKSUM_SHA256, reinterpret_cast<const guchar*>(header.data()), header.size()),
        g_free);
    identity += file->mapping.Identity() + ' ' + hash.get() + '\n';
  }
  return identity;
}

Status TensorStore::Check() const {
  for (const auto& file : impl_->files) QTTS_RETURN_IF_ERROR(file->mapping.Check());
  return Status::Ok();
}

bool TensorStore::Contains(std::string_view name) const { return impl_->tensors.count(name) != 0; }

std::vector<std::string> TensorStore::Names() const {
  std::vector<std::string> names;
  names.reserve(impl_->tensors.size());
  for (const auto& [name, location] : impl_->tensors) names.emplace_back(name);
  return names;
}

}  // namespace qtts
