"""ultralytics: a small YOLO; the training process makes every batch."""

from ultralytics import YOLO

model = YOLO("yolov8n.yaml")
model.train(
    data="data/boxes/data.yaml", epochs=3, imgsz=96, batch=16, workers=0, device="cpu", project="out-yolo", name="run",
    exist_ok=True, pretrained=False, plots=False, amp=False, verbose=False,
)
