from timm.data import create_dataset, create_loader

loader = create_loader(
    create_dataset("", root="pictures"),
    input_size=(3, 64, 64),
    batch_size=32,
    num_workers=0,
)
