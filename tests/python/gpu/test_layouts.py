"""Operands of products have layouts that fit their columns: docs/adr/0035-no-join-before-a-product.md."""

import layouts
from gpu_compiling import Product, wrong_products


def test_no_product_of_the_worst_kernels_is_wrong():
    found, count = layouts.wrong(layouts.worst(), "sm_80", repairs=False)
    assert found == [] and count == 12


def test_a_product_whose_lanes_hold_more_columns_than_there_are_is_found():
    dot = "tt.dot %a, %b, %c : tensor<16x{0}xf32, #ttg.dot_op<{{opIdx = 0, parent = #mma, kWidth = {1}}}>> * tensor<{0}x16xf32, #x>"
    assert wrong_products(dot.format(16, 8)) == [Product(16, 16, "f32", 8)]
    assert wrong_products(dot.format(32, 8) + "\n" + dot.format(16, 4)) == []
    assert layouts.faults("%x = tt.join %a, %b : tensor<16xi8>") == ["tt.join"]
