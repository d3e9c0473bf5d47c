"""Operands of products have layouts that fit their columns: docs/adr/0035-no-join-before-a-product.md."""

import layouts
import oldest_triton

from src.gpu.compiling import Product, wrong_products


def test_no_product_of_the_worst_kernels_is_wrong():
    faults, count = layouts.wrong(layouts.worst(), "sm_80", repairs=False)
    assert faults == [] and count == 12


def test_the_oldest_triton_compiles_the_passes_and_the_worst_kernels():
    printed = oldest_triton.scan("--chips", "sm_80", "--worst", "--compile")
    assert "compiled: forward largest_key query_gradient key_gradient\n" in printed
    assert f"Triton {oldest_triton.OLDEST}: 0 faults in 12 kernels" in printed


def test_a_product_whose_lanes_hold_more_columns_than_there_are_is_found():
    dot = "#mma = #ttg.nvidia_mma<{{versionMajor = 2, versionMinor = 0}}>\n"
    dot += "tt.dot %a, %b, %c : tensor<16x{0}xf32, #ttg.dot_op<{{opIdx = 0, parent = #mma, kWidth = {1}}}>> * tensor<{0}x16xf32, #x>"
    assert wrong_products(dot.format(16, 8)) == [Product(16, 16, "f32", 8)]
    assert wrong_products(dot.format(32, 8) + "\n" + dot.format(16, 4)) == []
    assert layouts.faults("%x = tt.join %a, %b : tensor<16xi8>") == ["tt.join"]
    assert wrong_products(dot.replace("nvidia_mma", "amd_mfma").format(16, 8)) == []
