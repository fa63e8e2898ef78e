/* Messages read and written by a table that was made of a descriptor set: tables.c SOCKET DESCRIPTOR_SET. */
#include "check.h"

static tollfree_value read_value(tollfree_object object, const uint32_t *path, size_t len)
{
  tollfree_value value = { .size = sizeof value };
  OK(tollfree_object_get(object, path, len, &value));
  return value;
}

#define READ(object, ...) \
  read_value(object, (const uint32_t[]){ __VA_ARGS__ }, sizeof((const uint32_t[]){ __VA_ARGS__ }) / sizeof(uint32_t))

static tollfree_payload file(const char *path)
{
  FILE *input = fopen(path, "rb");
  static uint8_t bytes[1 << 20];
  size_t len;
  CHECK(input != NULL);
  len = fread(bytes, 1, sizeof bytes, input);
  fclose(input);
  return tollfree_copied(bytes, len);
}

/* tollfree.freight.v1.Cargo: body, parts, raw, text, numbers, inner, number, act. */
static const uint8_t cargo[] = {
  0x0a, 3, 'a', 'b', 'c',                /* 1: body */
  0x12, 1, 'x', 0x12, 2, 'y', 'z',       /* 2: parts */
  0x22, 3, 0xc3, 0xbc, '!',              /* 4: text */
  0x2a, 4, 1, 0xff, 0xff, 3,             /* 5: numbers, packed */
  0x32, 4, 0x38, 7, 0x40, 5,             /* 6: inner { 7: number, 8: act } */
};

static void check_fields(tollfree_object object)
{
  static const uint32_t none = 0;
  tollfree_value value = READ(object, 1);
  CHECK(value.kind == TOLLFREE_VALUE_BYTES && value.bytes.len == 3 && memcmp(value.bytes.data, "abc", 3) == 0);
  value = READ(object, 2);
  CHECK(value.kind == TOLLFREE_VALUE_LIST && value.count == 2);
  value = READ(object, 2, 1);
  CHECK(value.kind == TOLLFREE_VALUE_BYTES && value.bytes.len == 2 && memcmp(value.bytes.data, "yz", 2) == 0);
  value = READ(object, 3);
  CHECK(value.kind == TOLLFREE_VALUE_ABSENT && value.bytes.data == NULL);
  value = READ(object, 4);
  CHECK(value.kind == TOLLFREE_VALUE_STRING && value.bytes.len == 3);
  value = READ(object, 5, 1);
  CHECK(value.kind == TOLLFREE_VALUE_UINT && value.integer == 65535);
  value = READ(object, 6);
  CHECK(value.kind == TOLLFREE_VALUE_MESSAGE);
  value = READ(object, 6, 7);
  CHECK(value.kind == TOLLFREE_VALUE_UINT && value.integer == 7);
  value = READ(object, 6, 8);
  CHECK(value.kind == TOLLFREE_VALUE_ENUM && value.integer == 5);
  value = READ(object, 6, 6, 6, 1);
  CHECK(value.kind == TOLLFREE_VALUE_ABSENT);
  value = read_value(object, &none, 0);
  CHECK(value.kind == TOLLFREE_VALUE_MESSAGE);
}

static void wrong_paths(tollfree_object object)
{
  static const uint32_t paths[][3] = { { 77, 0, 0 }, { 1, 1, 0 }, { 2, 2, 0 }, { 6, 99, 0 } };
  tollfree_value value = { .size = sizeof value };
  for (size_t at = 0; at < sizeof paths / sizeof paths[0]; at++)
    RETURNS(TOLLFREE_ERROR_OBJECT_FIELD, tollfree_object_get(object, paths[at], at == 0 ? 1 : 2, &value));
  RETURNS(TOLLFREE_ERROR_USE_NULL, tollfree_object_get(object, NULL, 1, &value));
  RETURNS(TOLLFREE_ERROR_USE_NULL, tollfree_object_get(object, NULL, 0, NULL));
  RETURNS(TOLLFREE_ERROR_USE_LENGTH, tollfree_object_get(object, paths[0], SIZE_MAX, &value));
  value.size = 4;
  RETURNS(TOLLFREE_ERROR_USE_SIZE, tollfree_object_get(object, NULL, 0, &value));
}

int main(int argc, char **argv)
{
  tollfree_table table, again;
  tollfree_object object, flat;
  tollfree_payload blob, encoded, kept;
  tollfree_bytes bytes;
  tollfree_value value = { .size = sizeof value };
  uint32_t type;
  CHECK(argc == 3);
  RETURNS(TOLLFREE_ERROR_TABLE_BLOB, tollfree_table_compile(tollfree_text("no descriptor set"), &table));
  RETURNS(TOLLFREE_ERROR_TABLE_BLOB, tollfree_table_load(tollfree_text("no table"), &table));
  OK(tollfree_table_compile(file(argv[2]).bytes, &table));
  /* What another program loads. */
  OK(tollfree_table_blob(table, &blob));
  OK(tollfree_table_load(blob.bytes, &again));
  OK(tollfree_buffer_release(blob.buffer));
  RETURNS(TOLLFREE_ERROR_TABLE_TYPE, tollfree_table_type(again, tollfree_text("tollfree.freight.v1.Nothing"), &type));
  OK(tollfree_table_type(again, tollfree_text("tollfree.freight.v1.Cargo"), &type));

  OK(tollfree_object_decode(again, type, tollfree_copied(cargo, sizeof cargo).bytes, &object));
  RETURNS(TOLLFREE_ERROR_OBJECT_UNSOUND, tollfree_object_decode(again, type, tollfree_copied(cargo, 4).bytes, &flat));
  RETURNS(TOLLFREE_ERROR_TABLE_TYPE, tollfree_object_decode(again, 100000, tollfree_copied(cargo, 4).bytes, &flat));
  check_fields(object);
  wrong_paths(object);
  OK(tollfree_object_encode(object, &encoded));
  CHECK(encoded.bytes.len == sizeof cargo && memcmp(encoded.bytes.data, cargo, sizeof cargo) == 0);
  OK(tollfree_buffer_release(encoded.buffer));

  /* As it would come from a gateway: copied, and read where it lies. */
  OK(tollfree_object_bytes(object, &bytes));
  OK(tollfree_buffer_copy(bytes, &kept));
  OK(tollfree_object_release(object));
  OK(tollfree_object_verify(again, type, kept, &flat));
  OK(tollfree_buffer_release(kept.buffer));
  OK(tollfree_table_release(again));
  check_fields(flat);
  OK(tollfree_object_bytes(flat, &bytes));
  RETURNS(TOLLFREE_ERROR_OBJECT_UNSOUND, tollfree_object_verify(table, type, tollfree_copied(bytes.data, bytes.len - 1), &object));
  RETURNS(TOLLFREE_ERROR_OBJECT_UNSOUND, tollfree_object_verify(table, type == 0 ? 1 : 0, tollfree_copied(bytes.data, bytes.len), &object));
  RETURNS(TOLLFREE_ERROR_OBJECT_UNSOUND, tollfree_object_verify(table, 100000, tollfree_copied(bytes.data, bytes.len), &object));
  for (size_t at = 0; at < bytes.len; at++) {
    /* Each byte wrong by turns: refused, or sound all the same. */
    uint8_t copy[4096];
    CHECK(bytes.len <= sizeof copy);
    memcpy(copy, bytes.data, bytes.len);
    copy[at] ^= 0xff;
    if (tollfree_object_verify(table, type, tollfree_copied(copy, bytes.len), &object) == 0) {
      OK(tollfree_object_encode(object, &encoded));
      OK(tollfree_buffer_release(encoded.buffer));
      OK(tollfree_object_release(object));
    }
  }
  OK(tollfree_object_release(flat));

  RETURNS(TOLLFREE_ERROR_TABLE_HANDLE, tollfree_object_release(flat));
  RETURNS(TOLLFREE_ERROR_TABLE_HANDLE, tollfree_object_get(flat, NULL, 0, &value));
  RETURNS(TOLLFREE_ERROR_TABLE_HANDLE, tollfree_object_encode(flat, &encoded));
  RETURNS(TOLLFREE_ERROR_TABLE_HANDLE, tollfree_object_bytes(flat, &bytes));
  RETURNS(TOLLFREE_ERROR_TABLE_HANDLE, tollfree_table_release(again));
  RETURNS(TOLLFREE_ERROR_TABLE_HANDLE, tollfree_table_blob(again, &blob));
  RETURNS(TOLLFREE_ERROR_TABLE_HANDLE, tollfree_object_decode(again, type, bytes, &object));
  RETURNS(TOLLFREE_ERROR_USE_NULL, tollfree_table_type(table, tollfree_text("x"), NULL));
  RETURNS(TOLLFREE_ERROR_USE_NULL, tollfree_object_verify(table, type, kept, NULL));
  RETURNS(TOLLFREE_ERROR_USE_NULL, tollfree_object_decode(table, type, tollfree_text(NULL), NULL));
  OK(tollfree_table_release(table));
  puts("done");
  return 0;
}
